"""Build the training and evaluation sets, in the row format that trl reads."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from . import data_sources, row_comparison
from .errors import RunError, rank, say
from .feature import Bundle
from .messages import FIELDS, KEPT, carried_by_first, without_nulls
from .rows import name

SYSTEM = "system"
"""A column with the system prompt of its row (ShareGPT's)."""


def build(bundle: Bundle, tokenizer: Any = None) -> tuple[Any, Any]:
    """The training set and the evaluation set; the latter is None, rows, or several sets by name.

    The tokenizer gives the chat template and the length of prompts. Call it on the main process first: the others then
    find the mapped rows in the cache. Raises RunError.
    """
    rows_of = partial(mapped, bundle, tokenizer)
    parts = [rows_of(source) for source in bundle.data["sources"]]
    sets = parts[0], None
    for feature in bundle.features:
        sets = feature.rows_mapped(bundle, sets, parts, rows_of, tokenizer)
    if len(sets[0]) == 0:
        raise RunError("the data has no rows to train on")
    return sets


def mapped(bundle: Bundle, tokenizer: Any, source: Mapping[str, Any], split: str | None = None) -> Any:
    """The mapped rows of a source. Raises RunError for a turn that the chat template drops."""
    stored, row_format = data_sources.load(bundle, source, split), bundle.row_format()
    data_sources.check_columns(row_format, source, list(stored.column_names))
    fields = _has_fields(stored)
    make = row_maker(bundle, source, tokenizer is None or bool(tokenizer.chat_template), fields)
    dropped = row_format.dropped(source, stored.column_names, bundle.method)
    try:
        part = stored.map(
            make,
            with_indices=True,
            remove_columns=dropped,
            num_proc=bundle.data.get("workers"),
            desc=None,
            features=_features(stored, dropped, make) if fields and len(stored) else None,
        )
    except UnicodeDecodeError as error:  # the readers do not check the encoding
        raise RunError(data_sources.unreadable(bundle, source, split, error)) from error
    if tokenizer is not None and tokenizer.chat_template and rank() == 0:
        sampled = {number: part[number] for number in row_comparison.sampled_rows(part)}
        label, omit = name(source) + ("" if split is None else f" ({split})"), bundle.data.get("omit", ())
        for note in row_comparison.check(sampled, tokenizer, label, row_format.conversations, omit):
            say(note)
    for feature in bundle.features:
        part = feature.source_mapped(bundle, source, part)
    return part


def _has_fields(stored: Any) -> bool:
    """Whether the messages of stored rows may have other keys than role and content, or columns for the template."""
    for column, feature in stored.features.items():
        turn = getattr(feature, "feature", None)
        keys = turn if isinstance(turn, dict) else {}
        plain = set(keys) in ({"role", "content"}, {"from", "value"})
        texts = all(getattr(one, "dtype", None) == "string" for one in keys.values())
        if column in KEPT or (turn is not None and not (plain and texts)):
            return True
    return False


def _features(stored: Any, dropped: Sequence[str], make: Callable[[Any, int], dict[str, Any]]) -> Any:
    """The types of the mapped columns: every message is three texts, whatever the stored messages are."""
    from datasets import Features, List, Value

    text, features = Value("string"), {column: one for column, one in stored.features.items() if column not in dropped}
    for column, value in make(stored[0], 0).items():
        turns = List({"role": text, "content": text, FIELDS: text})
        features[column] = turns if isinstance(value, list) else Value("bool") if isinstance(value, bool) else text
    return Features(features)


def row_maker(
    bundle: Bundle, source: Mapping[str, Any], chat: bool, fields: bool = False
) -> Callable[[Any, int], dict[str, Any]]:
    """The function from a stored row and its number to trl's row; ``chat`` is true with a chat template. With
    ``fields`` every message has that key, as rows of one type need."""
    convert = bundle.row_format().to_row
    for feature in bundle.features:
        convert = feature.row_converter(bundle, convert)
    convert = partial(
        convert, dict(source), system=bundle.data.get("system"),
        text=bundle.arguments.get("dataset_text_field") or "text", method=bundle.method, chat=chat,
    )  # fmt: skip
    used = [one for one in (*KEPT, SYSTEM) if not source.get("only") or one in source["columns"]]
    paths = [str(source["path"]), *(one["path"] for one in source.get("files") or ())]
    sparse = source["id"] is not None or any(one.endswith(".parquet") for one in paths)
    return partial(_row, convert, used, sparse, fields)


def _row(
    convert: Callable[..., dict[str, Any]], used: Sequence[str], sparse: bool, fields: bool,
    row: Mapping[str, Any], index: int,
) -> dict[str, Any]:  # fmt: skip
    """trl's row; its first message carries the columns that the chat template reads."""
    if sparse:
        row = {column: _without_nulls(value) for column, value in row.items()}
    system = row.get(SYSTEM) if SYSTEM in used else None
    made = convert(row, index, **({"system": system} if isinstance(system, str) and system.strip() else {}))
    if kept := {column: row[column] for column in KEPT if column in used and row.get(column)}:
        made = carried_by_first(made, kept)
    if fields:
        for value in made.values():
            for turn in value if isinstance(value, list) else ():
                turn.setdefault(FIELDS, "")
    return made


def _without_nulls(value: Any) -> Any:
    """A column without null keys; messages keep their own."""
    turns = value if isinstance(value, list) else [value]
    out = [{key: without_nulls(one) for key, one in turn.items()} if isinstance(turn, dict) else turn for turn in turns]
    return out if isinstance(value, list) else out[0]
