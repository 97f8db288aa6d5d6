"""Describe the texts and conversations that a script builds from the columns of its rows: as a column, as a prompt with
an answer, or as a template.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.row_lists import inside
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Choice,
    Column,
    Function,
    Object,
    Row,
    Text,
    Unknown,
)
from xpc.grammar.record import field, mutable, record

MOST_PARTS = 200
"""The largest number of parts of a string or a conversation that are searched for columns."""


@record
class Prompt:
    """How a string is built. It is the content of one column (`column`), a Jinja template over several columns
    (`template`), or a text without columns (`known`).
    """

    column: str = ""
    template: str = ""
    known: str | None = None


@mutable
class Turns:
    """A conversation. It is either a column that contains the conversation, or a system prompt, a question and an
    answer.
    """

    column: str = ""
    system: str = ""
    system_column: str = ""
    user: Prompt | None = None
    answer: Prompt | None = None
    generation: bool = False
    """Whether the conversation was rendered with `add_generation_prompt`, so that it ends where the answer begins."""


@mutable
class MappedColumns:
    """The columns that the function in a call of `map` returns, by name. If the function cannot be read, `why` is the
    reason.
    """

    columns: dict[str, object] = field(factory=dict)
    why: str = ""
    length: Argument | None = None
    """The argument `max_length` of the tokenizer's call, if the call truncates the text."""
    end: str = ""
    """For rows of tokens that the script builds itself: the token that it appends to an answer, such as `eos_token_id`,
    or `nothing`.
    """
    ended: bool = False
    """Whether the text of each row ends with the tokenizer's end token."""


def formatted(machine: Machine, function: object, before: dict[str, object]) -> object:
    """The string that a formatting function (`formatting_func`) returns for a row or for a batch of rows."""
    if not isinstance(function, Function | Bound):
        return Unknown("the function is not in the script", machine.location(ast.Pass()))
    found: object = None
    for batch in (False, True):
        node = function.node if isinstance(function, Function) else ast.Pass(lineno=0)
        with machine.over_rows():
            value = machine.call(function, [Argument(row_of(before, batch), machine.location(node))], {}, node)
        if isinstance(value, dict) and len(value) == 1:
            value = next(iter(value.values()))
        value = single(value, batch or isinstance(value, list))
        if not isinstance(value, Unknown) and value is not None:
            return value
        found = found or value
    return found


def row_of(columns: Mapping[str, object], batched: bool) -> Row:
    """The argument of a function that `map` calls: one row, which represents all rows; with `batched`, a batch of this
    row.
    """
    if not batched:
        return Row(False, dict(columns))
    return Row(True, {key: Column(one.name, True, one.source) if isinstance(one, Column) else [one]
                      for key, one in columns.items()})  # fmt: skip


def single(value: object, batched: bool) -> object:
    """The value of a function for one row. A function of batches (`batched`) returns a list with one item, which is the
    result.
    """
    if batched and isinstance(value, list) and len(value) == 1:
        value = value[0]
    return Column(value.name, False, value.source) if isinstance(value, Column) else value


def unstripped(value: object) -> object:
    """The column itself for `column.strip()`; any other value is returned unchanged."""
    strips = isinstance(value, Object) and value.path in ("str.strip", "str.lstrip", "str.rstrip")
    return value.receiver if strips and isinstance(value, Object) and isinstance(value.receiver, Column) else value


def stripped_columns(value: object) -> set[str]:
    """The names of the columns of a string or a conversation from which the script strips white space."""
    return {one.receiver.name for one in _inside(value) if unstripped(one) is not one}  # type: ignore[attr-defined]


def prompt_of(value: object) -> Prompt | None:
    """A string, written as a column or as a Jinja template; None if neither is possible."""
    if isinstance(value, str):
        return Prompt(known=value)
    if isinstance(value, Column):
        return Prompt(value.name)
    stripped = unstripped(value)
    if stripped is not value and isinstance(stripped, Column):
        return Prompt(template=f"{{{{ {stripped.name} | trim }}}}") if stripped.name.isidentifier() else None
    if isinstance(value, Choice):
        full, empty = prompt_of(value.full), prompt_of(value.empty)
        if full is None or empty is None or not value.column.isidentifier():
            return None
        texts = [
            one.template or (one.known if one.known is not None else f"{{{{ {one.column} }}}}") for one in (full, empty)
        ]
        if any(one.known is not None and "{" in one.known for one in (full, empty)):
            return None
        return Prompt(template=f"{{% if {value.column} %}}{texts[0]}{{% else %}}{texts[1]}{{% endif %}}")
    if not isinstance(value, Text):
        return None
    out = ""
    for part in value.parts:
        if isinstance(part, str):
            if any(mark in part for mark in ("{{", "{%", "{#")):
                return None
            out += part
        else:
            inner = prompt_of(part)
            if inner is None or not (inner.template or (inner.column and inner.column.isidentifier())):
                return None
            out += inner.template or f"{{{{ {inner.column} }}}}"
    return Prompt(known=out) if all(isinstance(part, str) for part in value.parts) else Prompt(template=out)


FIRST = ("<bos>", "<s>", "<|begin_of_text|>", "<|startoftext|>")
"""Bos tokens that chat templates write, and that a script removes if its trainer adds them again."""


def rendered(value: object) -> Object | None:
    """The call of `apply_chat_template` that returned a string, also if the script removes the bos token from it, as by
    `text.removeprefix("<bos>")` or `text.replace(tokenizer.bos_token, "")`. None for any other value.
    """
    if isinstance(value, Object) and value.last in ("removeprefix", "replace") and value.positional:
        token, *new = (one.value for one in value.positional)
        first = token in FIRST if isinstance(token, str) else isinstance(token, Object) and token.last == "bos_token"
        value = value.receiver if first and new == ([""] if value.last == "replace" else []) else value
    return value if isinstance(value, Object) and value.last == "apply_chat_template" else None


def columns_of(value: object) -> set[str]:
    """The names of the columns from which a string is built."""
    return {one.name for one in columns_in(value)}


def columns_in(value: object) -> list[Column]:
    """The columns from which a string is built."""
    return [one for one in _inside(value) if isinstance(one, Column)]


def _inside(value: object) -> list[object]:
    """A value and everything that it is built of: the parts of a string, of a conversation or of a call."""
    found = [value]
    for one in found:
        found += inside(one)[: max(MOST_PARTS - len(found), 0)]
    return found


def is_end(value: object) -> bool:
    """Whether a part of a string is `tokenizer.eos_token`."""
    return isinstance(value, Object) and value.path.endswith(".eos_token")


END_TOKENS = (
    "</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<eos>", "<|end|>",
    "<｜end▁of▁sentence｜>", "<|eot|>", "<turn|>", "<|return|>", "<|end_of_turn|>", "[EOS]",
)  # fmt: skip
"""End-of-turn and eos tokens of several model families. Scripts contain them as literal texts."""
ENDS = re.compile(rf"\s*(?:(?:{'|'.join(map(re.escape, END_TOKENS))})\s*)+")
"""Matches a text that consists of end tokens and white space."""


def divided(value: object) -> tuple[Prompt, str, bool | str] | None:
    """Split a string that ends with a column and perhaps an end marker, such as a prompt, the answer and the eos token.
    Returns the prompt, the name of the column, and the end marker: True for the tokenizer's eos token, a string for a
    literal token or white space, False for nothing. None for any other string.
    """
    if isinstance(value, Choice):
        full, empty = divided(value.full), divided(value.empty)
        if full is not None and full[1:] == (value.column, False) and full[0] == prompt_of(value.empty):
            return full  # the condition only omits an empty answer
        if full is None or empty is None or full[1:] != empty[1:] or not value.column.isidentifier():
            return None
        heads = [one[0].template or one[0].known or f"{{{{ {one[0].column} }}}}" for one in (full, empty)]
        text = f"{{% if {value.column} %}}{heads[0]}{{% else %}}{heads[1]}{{% endif %}}"
        return Prompt(template=text), full[1], full[2]
    parts = list(value.parts) if isinstance(value, Text) else [value]
    ended: bool | str = bool(parts) and is_end(parts[-1])
    if parts and isinstance(parts[-1], str) and ENDS.fullmatch(parts[-1]):
        ended = parts[-1].strip()
    elif parts and isinstance(parts[-1], str) and not parts[-1].strip():
        ended = parts[-1]
    if ended:
        parts.pop()
    answer = unstripped(parts.pop()) if parts else None
    if not isinstance(answer, Column):
        return None
    head = prompt_of(Text(tuple(parts))) if parts else Prompt(known="")
    return None if head is None else (head, answer.name, ended)


def is_ended(ended: bool | str) -> bool:
    """Whether `ended`, which `divided` returns, is an end token."""
    return bool(ended if isinstance(ended, bool) else ended.strip())


def turns_of(value: object) -> Turns | None:
    """Convert a list of messages, a column, or a rendered conversation to `Turns`; None for any other value."""
    if isinstance(value, Column):
        return Turns(value.name)
    made = rendered(value)
    if made is not None:
        messages, tokens = made.argument("conversation", 0), made.keywords.get("tokenize")
        if messages is None or (tokens is not None and tokens.value is not False):
            return None
        found = turns_of(messages.value)
        asks = made.keywords.get("add_generation_prompt")
        others = set(made.keywords) - {"conversation", "tokenize", "add_generation_prompt", "enable_thinking"}
        if found is None or others or (asks is not None and not isinstance(asks.value, bool)):
            return None
        found.generation = asks is not None and bool(asks.value)
        return found
    if not isinstance(value, list) or not 1 <= len(value) <= 3:
        return None
    out = Turns()
    for one in value:
        if not isinstance(one, dict) or not set(one) <= {"role", "content"}:
            return None
        role, content = one.get("role"), one.get("content")
        content = prompt_of(unstripped(content) if role == "assistant" else content)
        if content is None or not isinstance(role, str):
            return None
        if role == "system" and out.user is None:
            if content.known is None and not content.column:
                return None
            out.system, out.system_column = content.known or "", content.column
        elif role == "user" and out.user is None and out.answer is None:
            out.user = content
        elif role == "assistant" and out.answer is None:
            out.answer = content
        else:
            return None
    return out
