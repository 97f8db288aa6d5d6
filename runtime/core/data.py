"""The training and evaluation sets, from the sources to rows as trl reads them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from . import data_sources, rows, template_check
from .bundle import Bundle
from .errors import RunError


def build(bundle: Bundle, tokenizer: Any = None) -> tuple[Any, Any]:
    """The training set and the evaluation set: None, rows, or several of them by name.

    The tokenizer says whether there is a chat template, and how long a prompt is. Call it on the main process first:
    the others then find the mapped rows in the cache. Raises RunError.
    """
    rows_of = partial(mapped, bundle, tokenizer)
    parts = [rows_of(source) for source in bundle.data["sources"]]
    train, evaluation = bundle.changed("arranged", (parts[0], None), parts, rows_of, tokenizer)
    if len(train) == 0:
        raise RunError("the data has no rows to train on")
    return train, evaluation


def mapped(bundle: Bundle, tokenizer: Any, source: Mapping[str, Any], split: str | None = None) -> Any:
    """The mapped rows of a source. Raises RunError for a turn that the chat template leaves out."""
    part = _part(bundle, source, tokenizer is None or bool(tokenizer.chat_template), split)
    why = template_check.unheard(part, tokenizer, data_sources.name(source), shapes(bundle).conversations)
    if why is not None:
        raise RunError(why if split is None else f"{why} (split {split})")
    return part


def _part(bundle: Bundle, source: Mapping[str, Any], chat: bool, split: str | None = None) -> Any:
    stored = data_sources.load(bundle, source, split)
    known = shapes(bundle)
    data_sources.check_columns(known, source, list(stored.column_names))
    text = bundle.arguments.get("dataset_text_field") or "text"
    how = {"system": bundle.data.get("system"), "text": text, "method": bundle.method, "chat": chat}
    try:
        return stored.map(
            _convert,
            with_indices=True,
            remove_columns=known.dropped(source, stored.column_names, bundle.method),
            fn_kwargs={"source": dict(source), "how": how, "to_row": row_maker(bundle)},
            num_proc=bundle.data.get("workers"),
            desc=None,
        )
    except UnicodeDecodeError as error:  # the readers take what only its letters show
        raise RunError(data_sources.unreadable(bundle, source, split, error)) from error


def shapes(bundle: Bundle) -> Any:
    """The module that knows the shapes of the run's rows: ``rows``, or that of rows with a prompt."""
    return next(iter(bundle.parts("to_row")), rows)


def row_maker(bundle: Bundle) -> Callable[..., dict[str, Any]]:
    """What makes a row of trl's out of a stored one."""
    made: Callable[..., dict[str, Any]] = bundle.changed("row_maker", shapes(bundle).to_row)
    return made


def _convert(row: Any, index: int, source: Any, how: Any, to_row: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return to_row(source, row, index, **how)
