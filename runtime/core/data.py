"""The training and evaluation sets, from the sources to rows as trl reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import data_sources, rows, template_check
from .bundle import Bundle
from .errors import RunError


def build(bundle: Bundle, tokenizer: Any = None) -> tuple[Any, Any]:
    """The training set and the evaluation set: None, rows, or several of them by name.

    The tokenizer says whether there is a chat template, and how long a prompt is. Call it on the main process first:
    the others then find the mapped rows in the cache. Raises RunError.
    """
    import datasets

    datasets.disable_progress_bars()
    parts = [mapped(bundle, source, tokenizer) for source in bundle.data["sources"]]
    train, evaluation = parts[0], None
    if bundle.uses("mixture"):
        from ..features import mixture

        train, evaluation = mixture.build(bundle, parts, lambda one, *split: mapped(bundle, one, tokenizer, *split))
    elif bundle.uses("row_filters") and bundle.data.get("unique"):
        from ..features import row_filters

        train = row_filters.repeated(train)
    if bundle.uses("kto_rows"):
        from ..features import kto_rows

        data = bundle.data
        train = kto_rows.apart(train if bundle.uses("mixture") else kto_rows.shuffled(train, data), data)
        evaluation = _each(evaluation, lambda rows, _: kto_rows.apart(rows, data))
    if len(train) == 0:
        raise RunError("the data has no rows to train on")
    if bundle.uses("row_filters"):
        from ..features import row_filters

        train = row_filters.fitting(bundle, train, tokenizer, "train on")
        evaluation = _each(evaluation, lambda rows, use: row_filters.fitting(bundle, rows, tokenizer, use))
    return train, evaluation


def _each(evaluation: Any, change: Callable[[Any, str], Any]) -> Any:
    """The evaluation set, changed; of several each, with its name in the words for what it is used for."""
    if isinstance(evaluation, dict):
        return type(evaluation)({name: change(rows, f"evaluate on ({name})") for name, rows in evaluation.items()})
    return None if evaluation is None else change(evaluation, "evaluate on")


def mapped(bundle: Bundle, source: Mapping[str, Any], tokenizer: Any, split: str | None = None) -> Any:
    """The mapped rows of a source. Raises RunError for a turn that the chat template leaves out."""
    part = _part(bundle, source, tokenizer is None or bool(tokenizer.chat_template), split)
    why = template_check.unheard(part, tokenizer, data_sources.name(source))
    if why is not None:
        raise RunError(why if split is None else f"{why} (split {split})")
    return part


def _part(bundle: Bundle, source: Mapping[str, Any], chat: bool, split: str | None = None) -> Any:
    stored = data_sources.load(bundle, source, split)
    lacking = data_sources.missing_columns(source, list(stored.column_names))
    if lacking:
        raise RunError(lacking)
    text = bundle.arguments.get("dataset_text_field") or "text"
    how = {"system": bundle.data.get("system"), "text": text, "method": bundle.method, "chat": chat}
    try:
        return stored.map(
            _convert,
            with_indices=True,
            remove_columns=data_sources.dropped(source, stored.column_names, bundle.method),
            fn_kwargs={"source": dict(source), "how": how, "to_row": row_maker(bundle)},
            num_proc=bundle.data.get("workers"),
            desc=None,
        )
    except UnicodeDecodeError as error:  # the readers take what only its letters show
        raise RunError(data_sources.unreadable(bundle, source, split, error)) from error


def row_maker(bundle: Bundle) -> Callable[..., dict[str, Any]]:
    """What makes a row of a stored one."""
    if bundle.uses("paired_rows"):
        from ..features import paired_rows

        return paired_rows.to_row
    return rows.to_row


def _convert(row: Any, index: int, source: Any, how: Any, to_row: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return to_row(source, row, index, **how)
