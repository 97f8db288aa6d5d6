"""Rows without a separate prompt: messages with roles, from/value conversations, and texts, with their system
prompts.
"""

from collections.abc import Mapping
from typing import Any

from ...core import rows
from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Source
from ...core.rows import RowFormat, columns, conversations, dropped, name, with_system


def to_row(
    source: Source,
    row: Mapping[str, Any],
    index: int,
    system: str | None = None,
    text: str = "text",
    **_: object,
) -> dict[str, Any]:
    """Convert one stored row to the form that trl reads: ``messages``, or a text in trl's text column.

    The system prompt is added to every conversation without one. Raises RunError with the row's number (from 0) for a
    row in another format.
    """
    shape, where = source["shape"], f"{name(source)}, row {index}"
    if shape == "conversations":
        return rows.to_row(source, row, index, system)
    value = row[columns(source, list(row))[shape]]
    if shape == "text":
        return {text: string(value, where, "text")}
    return {"messages": with_system(messages(value, where), system)}


def messages(turns: object, where: str) -> list[dict[str, object]]:
    """The messages of a conversation, each with a role and a content. Raises RunError."""
    if not isinstance(turns, list) or not turns:
        raise RunError(f"{where}: the list of messages is empty or not a list")
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(turn.get("role"), str) or "content" not in turn:
            raise RunError(f"{where}: a message needs a role and a content")
        if not isinstance(turn["content"], str | list | None):
            raise RunError(f"{where}: the content of a message is not a text: {str(turn['content'])[:40]}")
    contents = ["" if turn["content"] is None else turn["content"] for turn in turns]
    return [{"role": turn["role"], **turn, "content": one} for turn, one in zip(turns, contents, strict=True)]


def string(value: object, where: str, what: str) -> str:
    """Return the value if it is a text. Raises RunError otherwise."""
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise RunError(f"{where}: the {what} is {kind}; it must be text")
    return value


FORMAT = RowFormat(columns, dropped, conversations, to_row)


class ChatRows(Feature):
    """Hooks for rows of chat messages or plain texts. A run does not need this feature if all its rows are
    conversations with `from` and `value`."""

    def row_format(self, bundle: Bundle) -> RowFormat:
        """The row format for rows without a separate prompt."""
        return FORMAT
