"""Interpret the functions that a script applies to the rows of its data by `map`. The results describe which columns
such a function makes, and from which texts or conversations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from itertools import islice

from xpc.compiler.importing.python.interpreter.assignment import IGNORED, MASKED_PADDING, MASKED_START
from xpc.compiler.importing.python.interpreter.attributes import item
from xpc.compiler.importing.python.interpreter.functions import origin
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Choice,
    Column,
    Function,
    Name,
    Object,
    Row,
    Text,
    Unknown,
)
from xpc.compiler.importing.python.token_rows import bare, token_row, tokenizer_call
from xpc.grammar.record import field, mutable, record

MOST_PARTS = 200
"""How many parts of a string or a conversation are searched for columns."""
AS_TRAINER = ("extract_prompt", "apply_chat_template")
"""Endings of TRL's functions over rows that its trainers also apply, such as `maybe_apply_chat_template`."""
PADDED = "the labels contain padding, which the script trains on"


@record
class Prompt:
    """How a string is made: it is the content of one column (`column`), or a Jinja template over columns (`template`),
    or a text without columns (`known`).
    """

    column: str = ""
    template: str = ""
    known: str | None = None


@mutable
class Turns:
    """A conversation: a column that contains it, or a system prompt, a question and an answer."""

    column: str = ""
    system: str = ""
    system_column: str = ""
    user: Prompt | None = None
    answer: Prompt | None = None
    generation: bool = False
    """Whether the conversation was rendered with `add_generation_prompt`, so that it ends where the answer begins."""


@mutable
class MappedColumns:
    """The columns that a function of `map` makes, by name. If the function cannot be read, `why` is the reason."""

    columns: dict[str, object] = field(factory=dict)
    why: str = ""
    length: Argument | None = None
    """The tokenizer's `max_length`, if it truncates."""
    end: str = ""
    """If the script builds the rows of tokens itself, the name of the tokenizer's token that it appends to an answer,
    or `nothing`.
    """
    ended: bool = False
    """Whether the text of a row ends with the tokenizer's end token."""


def apply(machine: Machine, function: object, batched: bool, before: dict[str, object], step: Object) -> MappedColumns:
    """Interpret `map(function)` on the columns `before`; `step` is the call. Returns the columns that the function
    makes or changes.
    """
    if isinstance(function, Name) and function.path.startswith("trl.") and function.path.endswith(AS_TRAINER):
        return MappedColumns()
    if not isinstance(function, Function | Bound):
        return MappedColumns(why="the function is not in the script")
    row = Row(batched, dict(before))
    node = function.node if isinstance(function, Function) else ast.Pass(lineno=0)
    given = [Argument(row, step.location)]
    only = step.argument("input_columns")
    if only is not None:
        names = [only.value] if isinstance(only.value, str) else only.value
        if not isinstance(names, list):
            return MappedColumns(why="the columns that the function gets (`input_columns`) are not known")
        given = [Argument(item(machine, row, one, node), step.location) for one in names]
    more = step.argument("fn_kwargs")
    named = {} if more is None or more.value is None else more.value
    if not isinstance(named, dict):
        return MappedColumns(why="its arguments (`fn_kwargs`) are not known")
    keywords = {str(key): Argument(one, step.location) for key, one in named.items()}
    changes = len(machine.inner_changes)
    with machine.over_rows():
        value = machine.call(function, given, keywords, node)
    if len(machine.inner_changes) > changes:
        return MappedColumns(why="the function changes a part of a column")
    if isinstance(value, Row):
        value = value.written
    if isinstance(value, Object) and value.path.endswith("()"):
        return _tokenized(value, batched)
    if not isinstance(value, dict):
        why = value.why if isinstance(value, Unknown) else "it returns no dict of columns"
        return MappedColumns(why=why)
    if "input_ids" in value:
        return tokens(value, batched)
    columns = {str(key): single(one, batched) for key, one in value.items()}
    return MappedColumns({key: one for key, one in columns.items() if before.get(key) is not one})


def _answered(ids: Object, labels: Object) -> MappedColumns:
    """The prompt and the answer of a tokenized row in which the labels of the prompt's tokens are -100."""
    call, masked = tokenizer_call(ids), tokenizer_call(labels.attributes[MASKED_START])
    text = None if call is None else call.argument("text", 0)
    question = None if masked is None else masked.argument("text", 0)
    if text is not None and question is not None and rendered(text.value) is not None and call is not None:
        return _answered_turns(call, text.value, question.value, labels)
    found = None if text is None else divided(text.value)
    prompt = None if question is None else prompt_of(question.value)
    if call is None or found is None or prompt is None or prompt != found[0] or not _copied(labels, call):
        return MappedColumns(why="the script makes the labels itself")
    made = _tokenized(call, False)
    assert question is not None
    columns = {"prompt": question.value, "completion": Column(found[1])}
    return MappedColumns(columns, made.why, made.length, ended=made.ended or bool(found[2]))


def _answered_turns(call: Object, text: object, question: object, labels: Object) -> MappedColumns:
    """The prompt and the answer of a rendered conversation in which the labels of all tokens before the last turn are
    -100.
    """
    turns, before = turns_of(text), turns_of(question)
    given = text.argument("conversation", 0) if isinstance(text, Object) else None
    messages = given.value if given is not None else None
    same = turns is not None and before is not None and turns.user == before.user and before.generation
    if not same or not isinstance(messages, list) or turns is None or turns.generation or not _copied(labels, call):
        return MappedColumns(why="the script makes the labels itself")
    made = _tokenized(call, False)
    return MappedColumns({"prompt": question, "completion": messages[-1:]}, made.why, made.length, ended=True)


def tokens(value: Mapping[str, object] | Mapping[object, object], batched: bool) -> MappedColumns:
    """For a function that returns `input_ids`: the text whose tokens these are, as a column `text`; or the question and
    the answer, if the script puts their tokens together. If the labels are other tokens, or the text is unknown, the
    result contains the reason (`why`).
    """
    ids, labels = bare(value["input_ids"]), bare(value.get("labels"))
    row = None if batched else token_row(ids, labels)
    if row is not None:
        columns = {"prompt": row.question, "completion": row.answer}
        return MappedColumns(
            {key: single(one, False) for key, one in columns.items()}, "", row.length, row.end or "nothing"
        )
    if isinstance(ids, Object) and isinstance(labels, Object) and MASKED_START in labels.attributes:
        return _answered(ids, labels)
    if not isinstance(ids, Object) or not ids.path.endswith("()[]") or "input_ids" not in _keys(ids):
        return MappedColumns(why="the script makes the tokens itself")
    call = ids.receiver
    if not isinstance(call, Object):
        return MappedColumns(why="the script makes the tokens itself")
    if labels is not None and not _copied(labels, call):
        return MappedColumns(why="the script makes the labels itself")
    made = _tokenized(call, batched)
    padding = call.keywords.get("padding")
    padded = padding is not None and padding.value not in (False, None)
    learned = padded and labels is not None and not _masks_padding(labels)
    return MappedColumns(made.columns, made.why or (PADDED if learned else ""), made.length, ended=made.ended)


def _tokenized(call: Object, batched: bool) -> MappedColumns:
    """The text with which a tokenizer is called. If there are labels, they must be the tokens of this text."""
    text = call.argument("text", 0)
    padding, cut, length = (call.keywords.get(one) for one in ("padding", "truncation", "max_length"))
    if text is None:
        return MappedColumns(why="the text that is tokenized is not known")
    labels = call.attributes.get("['labels']")
    if labels is not None and not _copied(labels, call):
        return MappedColumns(why="the script makes the labels itself")
    padded = padding is not None and padding.value not in (False, None)
    if cut is not None and cut.value not in (True, "longest_first", "only_first", False):
        return MappedColumns(why="how the text is cut is not known")
    why = PADDED if padded and labels is not None and not _masks_padding(labels) else ""
    cut_at = length if cut is not None and cut.value else None
    return MappedColumns({"text": single(text.value, batched)}, why, cut_at, ended=_appended(call))


def _appended(call: Object) -> bool:
    """Whether the script appends the end token to the tokens of a text, as alpaca-lora does for those that are not cut:
    `row["input_ids"].append(tokenizer.eos_token_id)`.
    """
    ids = call.attributes.get("['input_ids']")
    added = [one.positional[0].value for one in getattr(ids, "calls", ()) if one.last == "append" and one.positional]
    return any(isinstance(one, Object) and one.last == "eos_token_id" for one in added)


def _copied(labels: object, call: Object) -> bool:
    """Whether labels are the `input_ids` of a tokenizer call, or a copy of them."""
    if isinstance(labels, list) and len(labels) == 1:
        labels = labels[0]
    at, keys = labels, False
    for _ in range(20):
        if at is call or not isinstance(at, Object):
            break
        keys = keys or any(one.value == "input_ids" for one in at.positional) or at.last == "input_ids"
        if _has_other_items(at):
            return False
        at = origin(at)
    return at is call and keys


def _masks_padding(labels: object) -> bool:
    """Whether the script sets the labels of the padding to -100, as in `labels[labels == pad] = -100`."""
    return isinstance(labels, Object) and labels.attributes.get(MASKED_PADDING) == IGNORED


def _has_other_items(labels: Object) -> bool:
    """Whether the script sets items of a row's labels, as in `labels[i] = -100`. An item that the script only reads, as
    in `print(labels[i])`, does not count: it is an object whose `receiver` is `labels`.
    """
    return any(
        name.startswith("[") and not name.startswith("['") and getattr(one, "receiver", None) is not labels
        for name, one in labels.attributes.items()
    )


def _keys(value: Object) -> list[object]:
    """The keys and arguments by which a value was derived, such as `input_ids` for `tokens["input_ids"]`."""
    out: list[object] = []
    at: object = value
    while isinstance(at, Object) and len(out) < 20:
        out += [one.value for one in at.positional]
        at = at.receiver
    return out


def formatted(machine: Machine, function: object, before: dict[str, object]) -> object:
    """The string that a formatting function (`formatting_func`) makes from one row, or from a batch of rows."""
    if not isinstance(function, Function | Bound):
        return Unknown("the function is not in the script", machine.location(ast.Pass()))
    found: object = None
    for batch in (False, True):
        node = function.node if isinstance(function, Function) else ast.Pass(lineno=0)
        with machine.over_rows():
            value = machine.call(function, [Argument(Row(batch, dict(before)), machine.location(node))], {}, node)
        if isinstance(value, dict) and len(value) == 1:
            value = next(iter(value.values()))
        value = single(value, batch or isinstance(value, list))
        if not isinstance(value, Unknown) and value is not None:
            return value
        found = found or value
    return found


def single(value: object, batched: bool) -> object:
    """The value for one row. If the function gets batches (`batched`), its value is a list with one item, and this item
    is returned.
    """
    if batched and isinstance(value, list) and len(value) == 1:
        value = value[0]
    return Column(value.name, False, value.source) if isinstance(value, Column) else value


def unstripped(value: object) -> object:
    """The column of `column.strip()`; any other value unchanged."""
    strips = isinstance(value, Object) and value.path in ("str.strip", "str.lstrip", "str.rstrip")
    return value.receiver if strips and isinstance(value, Object) and isinstance(value.receiver, Column) else value


def stripped_columns(value: object) -> set[str]:
    """The names of the columns in a string or a conversation from which the script strips white space."""
    return {one.receiver.name for one in _inside(value) if unstripped(one) is not one}  # type: ignore[attr-defined]


def prompt_of(value: object) -> Prompt | None:
    """A string value as a column or a Jinja template; None if it cannot be written as either."""
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
    return Prompt(template=out)


def rendered(value: object) -> Object | None:
    """The `apply_chat_template` call that made a string; None for other values."""
    return value if isinstance(value, Object) and value.last == "apply_chat_template" else None


def columns_of(value: object) -> set[str]:
    """The names of the columns that a string contains."""
    return {one.name for one in _inside(value) if isinstance(one, Column)}


def _inside(value: object) -> list[object]:
    """A value and the values of which it consists: the parts of a string, of a conversation or of a call."""
    found = [value]
    for one in found:
        parts: Iterable[object] = ()
        if isinstance(one, Text):
            parts = one.parts
        elif isinstance(one, Choice):
            parts = (one.full, one.empty)
        elif isinstance(one, Object):
            parts = (one.receiver, *(given.value for given in one.positional))
        elif isinstance(one, list | dict):
            parts = one.values() if isinstance(one, dict) else one
        found += islice(parts, max(MOST_PARTS - len(found), 0))
    return found


def is_end(value: object) -> bool:
    """Whether a part of a string is `tokenizer.eos_token`."""
    return isinstance(value, Object) and value.path.endswith(".eos_token")


END_TOKENS = (
    "</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<eos>", "<|end|>",
    "<｜end▁of▁sentence｜>", "<|eot|>", "<turn|>", "<|return|>", "<|end_of_turn|>", "[EOS]",
)  # fmt: skip
"""End-of-turn and eos tokens of model families, which scripts write literally."""


def divided(value: object) -> tuple[Prompt, str, bool | str] | None:
    """Split a string that ends with a column, such as a prompt followed by the answer. Returns the prompt, the name of
    the last column, and whether an eos token follows the column (the token as a string if the script writes it
    literally). None if the string does not end with a column.
    """
    if isinstance(value, Choice):
        full, empty = divided(value.full), divided(value.empty)
        if full is not None and full[1:] == (value.column, False) and full[0] == prompt_of(value.empty):
            return full  # the condition only leaves out an empty answer
        if full is None or empty is None or full[1:] != empty[1:] or not value.column.isidentifier():
            return None
        heads = [one[0].template or one[0].known or f"{{{{ {one[0].column} }}}}" for one in (full, empty)]
        text = f"{{% if {value.column} %}}{heads[0]}{{% else %}}{heads[1]}{{% endif %}}"
        return Prompt(template=text), full[1], full[2]
    parts = list(value.parts) if isinstance(value, Text) else [value]
    ended: bool | str = bool(parts) and is_end(parts[-1])
    if parts and isinstance(parts[-1], str) and parts[-1].strip() in END_TOKENS:
        ended = parts[-1].strip()
    if ended:
        parts.pop()
    answer = unstripped(parts.pop()) if parts else None
    if not isinstance(answer, Column):
        return None
    head = prompt_of(Text(tuple(parts))) if parts else Prompt(known="")
    return None if head is None else (head, answer.name, ended)


def turns_of(value: object) -> Turns | None:
    """A list of messages, a column, or a rendered conversation as `Turns`; None if it has another form."""
    if isinstance(value, Column):
        return Turns(value.name)
    if isinstance(value, Object) and value.last == "apply_chat_template":
        rendered = value.argument("conversation", 0)
        tokens = value.keywords.get("tokenize")
        if rendered is None or (tokens is not None and tokens.value is not False):
            return None
        found = turns_of(rendered.value)
        asks = value.keywords.get("add_generation_prompt")
        others = set(value.keywords) - {"conversation", "tokenize", "add_generation_prompt", "enable_thinking"}
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
