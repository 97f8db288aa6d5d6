"""Convert stored conversations with the keys `from` and `value` to the form that trl reads."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import RunError
from .row_names import ROLES

if TYPE_CHECKING:
    from .payload_data import Source

FIELDS = "fields"
"""A key of converted messages: JSON text with all keys of the stored message except role and content."""
KEPT = ("tools", "chat_template_kwargs")
"""Columns that the chat template reads. A row's first message stores them, because for some methods trl drops other
columns, and because all rows of a mixture must have the same columns."""


class RowFormat(NamedTuple):
    """The functions that convert the stored rows of a run's sources for trl."""

    columns: "Callable[[Source, Sequence[str]], dict[str, str]]"
    """Gets a source and the dataset's columns; returns the column for each part of a row, `{"prompt": "question"}`."""
    dropped: "Callable[[Source, Sequence[str], str], list[str]]"
    """Gets a source, its columns and the method; returns the stored columns that the trainer does not get."""
    conversations: Callable[[Mapping[str, object]], list[list[dict[str, object]]]]
    """Gets a converted row; returns the conversations that the chat template renders."""
    to_row: Callable[..., dict[str, object]]
    """Gets a source, a stored row and its number; returns the row for trl. Raises RunError if the format differs."""


def name(source: "Source") -> str:
    """The name of a source in printed messages: its hub id, or its path."""
    return str(source["id"] or source["path"])


def columns(source: "Source", present: Sequence[str]) -> dict[str, str]:
    """The column with the conversations, as `{"conversations": "turns"}`; ``present`` are the dataset's columns."""
    used = [one for one in source["columns"] or () if one not in KEPT]
    return {source["shape"]: used[0] if used else source["shape"]}


def dropped(source: "Source", present: Sequence[str], method: str) -> list[str]:
    """The stored columns that the trainer does not get: all, because the messages contain what templates read."""
    return list(present)


def conversations(row: Mapping[str, Any]) -> list[list[dict[str, object]]]:
    """The conversations in a converted row, for the chat template. Empty if the row is plain text."""
    return [row["messages"]] if isinstance(row.get("messages"), list) else []


def to_row(
    source: "Source", row: Mapping[str, Any], index: int, system: str | None = None, **_: object
) -> dict[str, Any]:
    """Convert one stored row to trl's ``messages``.

    A content of null becomes an empty text, because a template would render "None". Raises RunError with the row's
    number (from 0) for a row in another format.
    """
    where = f"{name(source)}, row {index}"
    return {"messages": with_system(from_value(row[columns(source, list(row))["conversations"]], where), system)}


def with_system(messages: Sequence[dict[str, Any]], system: str | None) -> list[dict[str, object]]:
    """The messages with the system prompt before them. Unchanged if they already begin with a system prompt."""
    first = [] if system is None or messages[0]["role"] == "system" else [{"role": "system", "content": system}]
    return [*first, *messages]


def from_value(turns: object, where: str) -> list[dict[str, object]]:
    """The messages of a conversation with the keys `from` and `value`."""
    if not isinstance(turns, list) or not turns:
        raise RunError(f"{where}: the conversation is empty or not a list")
    out = []
    for turn in turns:
        speaker = turn.get("from") if isinstance(turn, dict) else None
        if speaker not in ROLES:
            how = "columns = [conversations, tools]" if "call" in str(speaker) else "data(user_roles=[NAME])"
            raise RunError(f"{where}: {speaker!r} is no known speaker: write `{how}`")
        content, fields = turn.get("value"), {FIELDS: turn[FIELDS]} if FIELDS in turn else {}
        if not isinstance(content, str | None):
            raise RunError(f"{where}: the value of a turn is not a text: {str(content)[:40]}")
        out.append({"role": ROLES[speaker], "content": "" if content is None else content, **fields})
    return out


FORMAT = RowFormat(columns, dropped, conversations, to_row)
