"""Facts about the rows of a data source that can be found out without the trainer."""

from __future__ import annotations

import json
from functools import lru_cache

from xpc.compiler.data.shapes import KEPT, SHAPES, TOKEN_MASKS, WITH_IMAGES
from xpc.compiler.files.workspace import HEAD, READ_ROWS
from xpc.compiler.registry import find_dataset
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey
from xpc.grammar.record import evolve

INTEGER, TEXT = "an integer", "a text"
"""What the values of a Parquet column are. Booleans count as integers; the third kind is "a fraction"."""


def survey(source: DataSource) -> Survey | None:
    """The survey of a local file's rows: counts, and the first row with each property that rules report. None for rows
    that the compiler does not read (hub, folder, Parquet, large file).
    """
    if source.survey is not None or not readable(source):
        return source.survey
    assert source.content is not None
    how = (source.shape, _with_prompt(source), source.context or "", source.roles, source.documents or "line")
    return _survey(source.content, source.path or "", *how)


def unread(spec: Spec) -> list[int]:
    """The indices of the training sources whose rows `xpc check` does not read."""
    if spec.reads_images:
        return []
    return [
        at for at, source in enumerate(spec.data) if any(survey(one) is None for one in source.of_split(source.split))
    ]


def valid_survey(source: DataSource) -> Survey | None:
    """The survey of a local file's rows (see `survey`). None also if the rows do not have the source's format."""
    found = survey(source)
    return None if found is None or found.wrong is not None else found


def readable(source: DataSource) -> bool:
    """Whether the contents of the source are loaded, and have a format that the compiler can read."""
    if source.content is None or not (source.path or "").lower().endswith(READ_ROWS):
        return False
    # another finding already reports the missing columns
    return len(columns(source)) >= len(SHAPES.get(source.shape, ("",)))


@lru_cache(maxsize=32)  # cached, because all members of a sweep have the same data
def _survey(
    content: bytes,
    path: str,
    shape: str,
    names: tuple[str, ...],
    context: str,
    roles: tuple[tuple[str, str], ...],
    documents: str,
) -> Survey:
    # imported only here, because most specs have no local file
    from xpc.compiler.data.survey import survey as survey_rows

    return survey_rows(content, path, shape, names, context, dict(roles), documents)


def count(source: DataSource) -> int | None:
    """The number of rows of a source. None if the number is unknown, for example for a slice of a split."""
    if source.slice is not None:
        return None
    if source.limit is not None:
        there = count(evolve(source, limit=None))
        return None if there is None else min(there, source.limit)
    if source.parts:
        each = [count(part) for part in source.of_split(source.split)]
        return None if None in each else sum(one for one in each if one is not None)
    found = None if source.rows is not None else survey(source)
    if found is None or found.broken is not None:
        return source.rows
    return found.rows


def columns(source: DataSource) -> tuple[str, ...]:
    """The dataset's own names for the columns that the format needs, in the order of `SHAPES`."""
    given = source.columns or SHAPES.get(source.shape, ())
    return tuple(name for name in given if name not in KEPT)


def lacks_columns(source: DataSource) -> bool:
    """Whether a local file lacks a column that its format needs. Its rows then cannot be counted or compared."""
    found = survey(source)
    return found is not None and not set(columns(source)) <= set(found.columns)


def _with_prompt(source: DataSource) -> tuple[str, ...]:
    """The columns of the format. A preference pair without `columns` in the spec also gets the column `prompt` if the
    file has one, because the runtime reads this column.
    """
    names = columns(source)
    prompted = source.shape == "preference" and source.columns is None and "prompt" in (source.found or ())
    return ("prompt", *names) if prompted else names


def conversational(source: DataSource) -> bool | None:
    """Whether the rows contain messages. False if they contain plain text, and None if this is unknown."""
    if source.shape in ("messages", "conversations", *WITH_IMAGES) or source.chat:
        return True
    if source.shape in ("text", "tokens") or source.wording is not None:
        return False
    first = next(iter(source.of_split(source.split)), source)
    found = survey(first)
    if found is not None and found.talks is not None:
        # a rule reports a file that has none of the columns
        return None if found.columns and {*columns(source)}.isdisjoint(found.columns) else found.talks
    if first.keys is not None:  # in a Parquet file, messages have nested keys, and plain texts have none
        names = _with_prompt(source)
        inside = any(key.partition("[]")[0] in names for key in first.keys if "[]" in key)
        return True if inside else False if {*names} <= {*first.keys} else None
    if (source.path or "").lower().endswith((".csv", ".txt")):
        return False
    known = find_dataset(source.id) if source.id is not None else None
    return known.talks if known is not None and known.shape == source.shape else None


def wrong_cells(source: DataSource) -> str | None:
    """The reason why the columns of a Parquet file have other types than the format needs. None if no fault is known.
    The types are in the file's footer; its rows are not read.
    """
    names, kinds = columns(source), source.keys or {}
    turns = {kinds.get(f"{name}[].{key}", TEXT) for name in names for key in ("role", "content", "from", "value")}
    lists = {"messages": "messages", "conversations": "messages", "tokens": "token ids"}.get(source.shape)
    for name in names if source.shape not in WITH_IMAGES else ():
        if lists is not None:
            kind = kinds.get(f"{name}[]", INTEGER)
            if name in kinds or kind == TEXT or (kind != INTEGER and name not in TOKEN_MASKS):
                return f"`{name}` is not a list of {lists}"
        elif source.shape == "unpaired" and name == names[-1]:
            if (kind := kinds.get(name, INTEGER)) != INTEGER:
                return f"`{name}` is {kind}, and a label is true or false, or 1 or 0"
        elif kinds.get(name, TEXT) != TEXT:
            return f"`{name}` is not text"
    return None if turns == {TEXT} else "the role or content of a message is not a text"


def all_texts(sources: tuple[DataSource, ...]) -> bool:
    """Whether it is known that all rows of all sources contain plain text, not messages."""
    return all(conversational(source) is False for source in sources)


def column_shape(path: str, head: bytes, name: str) -> str | None:
    """The format of a file of which only the column `name` is read: `text`, or the format of a chat, such as
    `messages`. The first row decides. None if this column has neither a text nor a chat.
    """
    if path.lower().endswith(".csv") or isinstance(first_row(head.decode("utf-8", "replace"))[0].get(name), str):
        return "text"
    return turn_columns(head).get(name)


def first_row(text: str) -> tuple[dict[str, object], int]:
    """The first JSON row in `text`, the beginning of a file, and the offset at which the row ends. The row is empty if
    it cannot be read.
    """
    try:
        row, end = json.JSONDecoder().raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):
        return {}, 0
    return (row, end) if isinstance(row, dict) else ({}, 0)


def turn_columns(head: bytes) -> dict[str, str]:
    """Find the columns of the first JSON row that contain turns of a chat. Map each of them to its format, `messages`
    or `conversations`.
    """
    row, _ = first_row(head.decode("utf-8", "replace"))
    first = {str(name): value[0] for name, value in row.items() if isinstance(value, list) and value}
    turns = {name: turn for name, turn in first.items() if isinstance(turn, dict)}
    shapes = (("messages", {"role", "content"}), ("conversations", {"from", "value"}))
    return {name: shape for name, turn in turns.items() for shape, keys in shapes if keys <= turn.keys()}


def first_columns(path: str, head: bytes) -> list[str] | None:
    """The columns of the first row. None if the compiler cannot read the format of the file."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff\r\n")
    lower = path.lower()
    if lower.endswith(".txt"):
        return ["text"]
    if lower.endswith(".csv"):
        import csv  # imported only here, because few specs have CSV files

        try:
            return next(csv.reader([text.partition("\n")[0]]), [])
        except csv.Error:  # a name of more than 131,072 characters
            return []
    if not lower.endswith((".json", ".jsonl")):
        return None
    start = text.find("{")
    if start < 0 or text[:start].strip() not in ("", "["):
        return []
    try:
        row, _ = json.JSONDecoder().raw_decode(text, start)
    except RecursionError:
        return []
    except ValueError:
        # a first row that is longer than HEAD may have been read only in part, so its keys are unknown
        return None if len(head) >= HEAD else []
    return [str(key) for key in row]
