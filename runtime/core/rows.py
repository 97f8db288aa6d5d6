"""From a stored row to one that trl reads: conversations that are spelled from and value."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import RunError

KEPT = ("tools", "chat_template_kwargs")
"""Columns that trl reads as they are, in every shape."""
ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "model": "assistant", "bot": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "observation": "tool",
}  # fmt: skip
"""Speakers of from/value conversations (ShareGPT and its kin) as the roles of chat templates."""


class RowFormat(NamedTuple):
    """Four functions over the shapes that a run may have."""

    columns: Callable[[Mapping[str, Any], Sequence[str]], dict[str, str]]
    """The dataset's own column for each part of the shape, of a source and the columns that the dataset has."""
    dropped: Callable[[Mapping[str, Any], Sequence[str], str], list[str]]
    """The stored columns that the trainer does not get, of a source, its columns and the method."""
    conversations: Callable[[Mapping[str, Any]], list[list[dict[str, Any]]]]
    """The conversations that are rendered of a converted row."""
    to_row: Callable[..., dict[str, Any]]
    """One stored row as trl reads it, of a source, the row and its number. Raises RunError for another shape."""


def name(source: Mapping[str, Any]) -> str:
    """The name of a source in messages."""
    return str(source["id"] or source["path"])


def columns(source: Mapping[str, Any], present: Sequence[str]) -> dict[str, str]:
    """The dataset's own column for the part of the shape; ``present`` is what the dataset has."""
    used = [one for one in source["columns"] or () if one not in KEPT]
    return {source["shape"]: used[0] if used else source["shape"]}


def dropped(source: Mapping[str, Any], present: Sequence[str], method: str) -> list[str]:
    """The columns that the trainer does not get as they are stored.

    A source that names its columns (``only``) has no others, as with the handbook's ``select_columns``.
    """
    return [one for one in present if one not in KEPT or (source.get("only") and one not in source["columns"])]


def conversations(row: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The conversations that are rendered of a mapped row: none of one that is a text."""
    return [row["messages"]] if isinstance(row.get("messages"), list) else []


def to_row(source: Mapping[str, Any], row: Mapping[str, Any], index: int, **_: object) -> dict[str, Any]:
    """One stored row as trl reads it: its ``messages``.

    A turn without content (null) is an empty one, which a template would write as "None". Raises RunError with the
    row's number (from 0) for a row of another shape.
    """
    turns = row[columns(source, list(row))["conversations"]]
    return {"messages": from_value(turns, f"{name(source)}, row {index}")}


def from_value(turns: Any, where: str) -> list[dict[str, Any]]:
    """The messages of a conversation that is spelled from and value."""
    if not isinstance(turns, list) or not turns:
        raise RunError(f"{where}: the conversation is empty or no list")
    out = []
    for turn in turns:
        speaker = turn.get("from") if isinstance(turn, dict) else None
        if speaker not in ROLES:
            raise RunError(f"{where}: {speaker!r} is no known speaker; known are {', '.join(sorted(ROLES))}")
        content = turn.get("value")
        out.append({"role": ROLES[speaker], "content": "" if content is None else content})
    return out


FORMAT = RowFormat(columns, dropped, conversations, to_row)
