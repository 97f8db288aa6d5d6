"""Check that a chat template renders every turn: some know only certain roles, or only text contents."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..library_internals.datasets_rows import rearranged

COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected")
FIRST = 4
"""Rows of each source that are rendered, besides the first with each role."""

Conversations = Callable[[Mapping[str, Any]], list[list[dict[str, Any]]]]
"""From a mapped row: its conversations (see ``rows.RowFormat``)."""


def omitted_turn(
    rows: Mapping[int, Mapping[str, Any]], tokenizer: Any, name: str, conversations: Conversations
) -> str | None:
    """A sentence on the first turn that the template drops, or None; ``rows`` are keyed by their number."""
    for number, row in rows.items():
        why = of_row(row, tokenizer, conversations)
        if why is not None:
            return f"{name}, row {number}: {why}"
    return None


def of_row(row: Mapping[str, Any], tokenizer: Any, conversations: Conversations) -> str | None:
    """Why a mapped row is not rendered completely, or None. Rows that the template refuses are reported elsewhere."""
    tools = row.get("tools")
    tools = json.loads(tools) if isinstance(tools, str) and tools else tools
    for turns in conversations(row):
        marked = [_marked(turn, f"turn{index}said") for index, turn in enumerate(turns)]
        try:
            text = tokenizer.apply_chat_template(
                [one for one, _ in marked], tools=tools or None, tokenize=False,
                add_generation_prompt=turns[-1]["role"] != "assistant", **(row.get("chat_template_kwargs") or {}),
            )  # fmt: skip
        except Exception:  # a template may raise anything
            return None
        for index, (turn, (_, has_text)) in enumerate(zip(turns, marked, strict=True)):
            if has_text and f"turn{index}said" not in text:
                parts = isinstance(turn["content"], list)
                odd = "a list of parts, where it takes a text" if parts else "a role that it does not know"
                return (
                    f"the chat template drops the content of the {turn['role']!r} turn ({odd}), which would not be "
                    "trained on: change the data, or name another chat_template"
                )
    return None


def _marked(turn: Mapping[str, Any], mark: str) -> tuple[dict[str, Any], bool]:
    """The turn with a marker in place of its text, and whether it had a text.

    A turn with tool calls is not marked: templates may drop its text.
    """
    content = turn.get("content")
    if turn.get("tool_calls"):
        return dict(turn), False
    if isinstance(content, str):
        return ({**turn, "content": mark}, True) if content.strip() else (dict(turn), False)
    if isinstance(content, list):
        for index, part in enumerate(content):
            if isinstance(part, dict) and str(part.get("text") or "").strip():
                parts: Sequence[Any] = [*content[:index], {**part, "text": mark}, *content[index + 1 :]]
                return {**turn, "content": parts}, True
    return dict(turn), False


def sampled_rows(part: Any) -> list[int]:
    """The numbers of the first mapped rows, and of the first row with each role in each column of turns. The latter are
    found without reading the rows one by one."""
    import pyarrow
    import pyarrow.compute

    found = set(range(min(FIRST, len(part))))
    for name in () if rearranged(part) else (one for one in COLUMNS if one in part.column_names):
        column = part.data.column(name)
        kind = column.type
        if not pyarrow.types.is_list(kind) or not pyarrow.types.is_struct(kind.value_type):
            continue
        if kind.value_type.get_field_index("role") < 0:
            continue
        rows = pyarrow.compute.list_parent_indices(column)
        roles = pyarrow.compute.struct_field(pyarrow.compute.list_flatten(column), "role")
        found |= {rows[pyarrow.compute.index(roles, role).as_py()].as_py() for role in roles.unique().to_pylist()}
    return sorted(found)
