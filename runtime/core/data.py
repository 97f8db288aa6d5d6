"""Build the training and evaluation sets, in the row format that trl reads."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from . import data_sources, row_comparison
from .errors import RunError, rank, say
from .feature import Bundle, Rows, RowSets, Source, Tokenizer
from .rows import name

SYSTEM = "system"
"""A column of ShareGPT rows that contains the row's system prompt."""


def build(bundle: Bundle, tokenizer: Any = None) -> RowSets:
    """Return a pair: the training set and the evaluation set. The latter is None, a set, or a dict of sets by name.

    The tokenizer renders the chat template and counts the tokens of prompts. Call this on the main process first; the
    other processes then find the converted rows in the cache. Raises RunError.
    """
    rows_of = partial(mapped, bundle, tokenizer)
    parts = [rows_of(source) for source in bundle.data["sources"]]
    sets: RowSets = parts[0], None
    for feature in bundle.features:
        sets = feature.rows_mapped(bundle, sets, parts, rows_of, tokenizer)
    if len(sets[0]) == 0:
        raise RunError("the data has no rows to train on")
    return sets


def mapped(bundle: Bundle, tokenizer: Tokenizer | None, source: Source, split: str | None = None) -> Rows:
    """The rows of a source in trl's form. Raises RunError if the chat template drops a turn."""
    stored, row_format = data_sources.load(bundle, source, split), bundle.row_format()
    data_sources.check_columns(row_format, source, list(stored.column_names))
    make = row_maker(bundle, source, tokenizer is None or bool(tokenizer.chat_template))
    dropped = row_format.dropped(source, stored.column_names, bundle.method)
    types = [feature.row_types(bundle, source, stored, dropped, make) for feature in bundle.features]
    try:
        part: Rows = stored.map(
            make, with_indices=True, remove_columns=dropped, num_proc=bundle.data.get("workers"), desc=None,
            features=next((one for one in types if one is not None), None),
        )  # fmt: skip
    except UnicodeDecodeError as error:  # invalid UTF-8 is found when a row is read
        raise RunError(data_sources.unreadable(bundle, source, split, error)) from error
    if tokenizer is not None and tokenizer.chat_template and rank() == 0:
        sampled = {number: part[number] for number in row_comparison.sampled_rows(part)}
        label, omit = name(source) + ("" if split is None else f" ({split})"), bundle.data.get("omit", ())
        for note in row_comparison.check(sampled, tokenizer, label, row_format.conversations, omit):
            say(note)
        if any(map(row_format.conversations, sampled.values())):
            bundle.conversational = True
            say(f"{label}: checked {len(sampled):,} of {len(part):,} rows for parts that the chat template drops")
    for feature in bundle.features:
        part = feature.source_mapped(bundle, source, part)
    return part


def row_maker(bundle: Bundle, source: Source, chat: bool) -> Callable[[object, int], dict[str, object]]:
    """Return the function that gets a stored row and its number, and converts the row to trl's form. ``chat`` is true
    if the tokenizer has a chat template."""
    convert = bundle.row_format().to_row
    for feature in bundle.features:
        convert = feature.row_converter(bundle, convert)
    how = {
        "system": bundle.data.get("system"), "text": bundle.arguments.get("dataset_text_field") or "text",
        "method": bundle.method, "chat": chat,
    }  # fmt: skip
    return partial(_row, convert, source.copy(), how)


def _row(
    convert: Callable[..., dict[str, object]], source: Source, how: dict[str, object], row: Mapping[str, object],
    index: int,
) -> dict[str, object]:  # fmt: skip
    """Convert a stored row to trl's form. A text in its column `system` becomes the system prompt."""
    system = row.get(SYSTEM) if not source.get("only") or SYSTEM in (source["columns"] or ()) else None
    return convert(source, row, index, **how | ({"system": system} if system and isinstance(system, str) else {}))
