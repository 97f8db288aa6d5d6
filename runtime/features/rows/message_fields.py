"""Messages with more than a role and a text (parts, tool calls, reasoning), and the tools of a row.

trl gets three texts for each message: the role, the content, and all other keys as JSON under ``FIELDS``. So all rows
have the same type. `Renderer` gives the chat template the message with its original keys.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Rows, Source, Tokenizer
from ...core.row_comparison import Loss, Markers, content
from ...core.row_names import REASONING
from ...core.rows import FIELDS, KEPT, name
from ..messages import turn_notes
from ..messages.call_forms import (
    described_tools,
    doubles,
    found_forms,
    from_caller,
    has_callers,
    in_form,
    with_arguments,
    wrong_call,
)
from ..messages.stored_columns import declined
from ..messages.turn_names import CALLERS, MASKED, TRAINED
from ..messages.turn_notes import READ

LABELS = ("type", "id", "index", "format", "signature")  # keys of a reasoning block whose values are not text
CARRIERS = ("messages", "prompt", "chosen", "rejected")
"""Columns that contain messages. The first message of such a column stores other columns that the template reads."""


class MessageFields(Feature):
    """Handles messages with more keys than a role and a text."""

    tokenizer: Any = None

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Give the chat template every message in a form that the template can read."""
        tokenizer.apply_chat_template = Renderer(tokenizer)
        self.tokenizer = tokenizer

    def row_converter(self, bundle: Bundle, convert: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Make ``convert`` keep all keys of messages. A row's first message also stores those columns of the row that
        the chat template reads."""
        learned: tuple[str, ...] = ("messages", "completion", "chosen", "rejected")
        if bundle.arguments.get("assistant_only_loss"):  # `Renderer` masks turns that are not to be learned
            learned = ()
        elif bundle.arguments.get("completion_only_loss") is False:
            learned += ("prompt",)
        return partial(_read, convert, learned, "tool_calls" in bundle.data.get("omit", ()))

    def source_mapped(self, bundle: Bundle, source: Source, rows: Rows) -> Rows:
        """Report keys of turns that nothing reads, and learned turns that are not answers."""
        turn_notes.check(bundle, source, rows, doubles(self.tokenizer), self.tokenizer)
        return rows

    def row_types(
        self, bundle: Bundle, source: Source, stored: Rows, dropped: Sequence[str],
        make: Callable[[Any, int], dict[str, Any]],
    ) -> dict[str, object] | None:  # fmt: skip
        """The types of the columns. Every message has three texts: role, content, and its other keys as JSON."""
        from datasets import Features, List, Value

        if not len(stored) or not _has_fields(stored):
            return None
        text, types = Value("string"), {column: one for column, one in stored.features.items() if column not in dropped}
        made = make(stored[0], 0)
        if "input_ids" in made:  # a row of token ids has no messages
            return None
        for column, value in made.items():
            turns = List({"role": text, "content": text, FIELDS: text})
            types[column] = turns if isinstance(value, list) else Value("bool") if isinstance(value, bool) else text
        found: dict[str, Any] = Features(types)
        return found


def _has_fields(stored: Rows) -> bool:
    """Whether messages may have keys besides role and content, or rows may have columns that the template reads."""
    for column, kind in stored.features.items():
        turn = getattr(kind, "feature", None)
        keys = turn if isinstance(turn, dict) else {}
        plain = set(keys) in ({"role", "content"}, {"from", "value"})
        texts = all(getattr(one, "dtype", None) == "string" for one in keys.values())
        if plain and "from" in keys and has_callers(stored.data.column(column)):
            return True
        if column in (*KEPT, "functions") or (turn is not None and not (plain and texts)):
            return True
    return False


def _read(
    convert: Callable[..., dict[str, Any]],
    learned: Sequence[str],
    any_arguments: bool,
    source: Source,
    row: Mapping[str, Any],
    index: int,
    **how: object,
) -> dict[str, object]:
    """Convert a row to trl's form. Its first message gets the columns that the chat template reads, such as `tools`."""
    where = f"{name(source)}, row {index}"
    paths = [str(source["path"]), *(one["path"] for one in source.get("files") or ())]
    if source["id"] is not None or any(one.endswith(".parquet") for one in paths):
        row = {column: _without_nulls(value) for column, value in row.items()}
    row = {column: value if column in KEPT else _packed(value, where) for column, value in row.items()}
    made = convert(source, row, index, **how)
    _check_learned(made, learned, where)
    if not any_arguments:
        _check_calls(made, where)
    used = [one for one in KEPT if not source.get("only") or one in (source["columns"] or ())]
    if not any(isinstance(made.get(one), list) for one in CARRIERS):
        return made
    kept = {column: row[column] for column in used if row.get(column)}
    if "tools" in used and (tools := kept.get("tools") or row.get("functions")):
        kept["tools"] = described_tools(tools, where)
    kept |= {"system": row["system"]} if _other_system(made, how.get("system"), row) else {}
    return carried_by_first(made, kept) if kept else made


def _other_system(made: Mapping[str, Any], system: object, row: Mapping[str, object]) -> bool:
    """Whether the conversation begins with its own system prompt. If so, the row's column `system` is not read."""
    first = next(made[column][0] for column in CARRIERS if isinstance(made.get(column), list))
    return bool(system) and system == row.get("system") and first["role"] == "system" and first["content"] != system


def _check_learned(made: Mapping[str, Any], learned: Sequence[str], where: str) -> None:
    """Raise RunError if the row excludes a turn from the loss that would still be learned, or if it excludes all
    answers."""
    for column in ("messages", "prompt", "completion", "chosen", "rejected"):
        turns = unpacked(made[column])[0] if isinstance(made.get(column), list) else []
        excluded = [number for number, turn in enumerate(turns) if untrained(turn)]
        if excluded and column in learned:
            raise RunError(
                f"{where}: turn {excluded[0]} of {column} is not to be learned (weight 0, or train false), and this "
                "run learns it; leave the turn out of the data, or write `method sft(assistant_only)`"
            )
        answers = [number for number, turn in enumerate(turns) if turn["role"] == "assistant"]
        if answers and set(answers) <= set(excluded) and column in ("messages", "completion"):
            raise RunError(f"{where}: no answer is to be learned (weight 0, or train false); leave the row out")


def _check_calls(made: Mapping[str, object], where: str) -> None:
    """Raises RunError for a call without a name, and for arguments of a call that are not a JSON object."""
    for turns in made.values():
        for turn in turns if isinstance(turns, list) else ():
            fields = json.loads(turn[FIELDS]) if isinstance(turn, dict) and turn.get(FIELDS) else {}
            if (calls := fields.get("tool_calls")) and (wrong := wrong_call(calls)):
                raise RunError(f"{where}: {wrong}; change the row, or allow it with `data(omit=[tool_calls])`")


def untrained(turn: Mapping[str, object]) -> bool:
    """Whether the row excludes this turn from the loss, for example by ``"weight": 0`` or ``"train": false``."""
    if READ.isdisjoint(turn):
        return False
    if any(turn.get(key) in (True, 1) for key in MASKED):
        return True
    return any(declined(turn[key]) for key in TRAINED if turn.get(key) is not None)


def _packed(value: object, where: str) -> object:
    """The column, with each message converted by `packed`. A column without messages is returned unchanged."""
    if isinstance(value, list):
        return [_packed(turn, where) if isinstance(turn, dict) else turn for turn in value]
    return packed(value, where) if isinstance(value, dict) and ("role" in value or "from" in value) else value


def _without_nulls(value: object) -> object:
    """The column without those keys whose value is null. In a Parquet file, every message has all keys of the file, and
    the value of a key that it lacked is null.
    """
    if isinstance(value, list):
        return [_without_nulls(turn) if isinstance(turn, dict) else turn for turn in value]
    return {key: without_nulls(one) for key, one in value.items()} if isinstance(value, dict) else value


def packed(turn: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A message as role, content and one JSON string with all its other keys. If the content is a list of parts, the
    parts' texts are joined; the JSON keeps the list for templates that read lists. OpenAI's older form of a tool call
    (`function_call`, role `function`) becomes the newer form. A turn with calls needs no content. Raises RunError for a
    part that is not text.
    """
    if turn.keys() == {"role", "content"} and type(turn["content"]) is str and turn["role"] != "function":
        return {"role": turn["role"], "content": turn["content"]}
    turn = from_caller(turn, where) if turn.get("from") in CALLERS else turn
    names = ("from", "value") if "from" in turn else ("role", "content")
    message = {key: turn[key] for key in names if key in turn}
    if message.get("role") == "function":
        message["role"] = "tool"
    fields = {key: value for key, value in turn.items() if key not in names and value is not None}
    if "function_call" in fields and "tool_calls" not in fields:
        fields["tool_calls"] = [{"type": "function", "function": fields.pop("function_call")}]
    if isinstance(calls := fields.get("tool_calls"), list):
        fields["tool_calls"] = with_arguments(calls)
        message.setdefault(names[1], "")
    if isinstance(parts := turn.get(names[1]), list):
        fields["content"] = [{"type": "text", "text": _text(part, where)} for part in parts]
        message[names[1]] = "".join(part["text"] for part in fields["content"])
    if fields:
        message[FIELDS] = json.dumps(fields, ensure_ascii=False)
    return message


def _text(part: Rows, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in (None, "text") and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise RunError(f"{where}: a message has a part of the type {str(kind)[:40]!r}, but only text is trained on")


def without_nulls(value: object) -> object:
    """The value without dict entries whose value is null, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def carried_by_first(made: Mapping[str, Any], kept: Mapping[str, object]) -> dict[str, object]:
    """Store the values in ``kept`` (such as `tools`) in the first message of a converted row; returns the row."""
    begins = [column for column in ("messages", "prompt") if isinstance(made.get(column), list)]
    out = dict(made)
    for column in begins or [column for column in ("chosen", "rejected") if isinstance(made.get(column), list)]:
        first, *rest = made[column]
        fields = {**json.loads(first.get(FIELDS) or "{}"), **kept}
        out[column] = [{**first, FIELDS: json.dumps(fields, ensure_ascii=False)}, *rest]
    return out


def unpacked(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The inverse of `packed`: the messages with their original keys, and the columns stored in the first message."""
    read = [{**turn, **json.loads(turn[FIELDS])} if turn.get(FIELDS) else turn for turn in messages]
    turns = [{key: one for key, one in turn.items() if key != FIELDS} for turn in read]
    carried = {name: turns[0].pop(name) for name in KEPT if turns and name in turns[0]}
    return turns, carried


class Renderer:
    """Replaces ``apply_chat_template`` of a tokenizer: gives the template each message in a form that it can read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def real(self) -> Callable[..., Any]:
        """The tokenizer's own ``apply_chat_template``."""
        return partial(type(self.tokenizer).apply_chat_template, self.tokenizer)

    def __call__(self, conversation: Any, tools: Any = None, **options: object) -> Any:
        """Render messages with their original keys. If a row excludes a turn, the assistant mask of the turn is 0."""
        real = self.real()
        if conversation and not isinstance(conversation[0], Mapping):
            every = [unpacked(one) for one in conversation]
            if not any(carried for _, carried in every):
                return real([self._read(real, turns, options) for turns, _ in every], tools=tools or None, **options)
            made = [self(one, tools, **options) for one in conversation]
            return {key: [one[key] for one in made] for key in made[0]} if isinstance(made[0], Mapping) else made
        turns, carried = unpacked(conversation)
        options |= carried.get("chat_template_kwargs") or {}
        tools = tools or carried.get("tools")
        tools = json.loads(tools) if isinstance(tools, str) else tools
        out = real(self._read(real, turns, options), tools=tools or None, **options)
        if options.get("return_assistant_tokens_mask") and any(untrained(turn) for turn in turns):
            out["assistant_masks"] = self._learned(turns, {**options, "tools": tools}, out)
        return out

    def _learned(self, turns: list[dict[str, Any]], options: dict[str, object], out: Any) -> list[int]:
        """The assistant mask of a rendered conversation, with 0 for answers that the row excludes from the loss.

        Raises RunError if such an answer cannot be found in the rendered text.
        """
        for option in ("tokenize", "return_dict", "return_assistant_tokens_mask"):
            options.pop(option, None)
        marks = Markers()
        marked = [_with_mark(turn, number, marks) if untrained(turn) else turn for number, turn in enumerate(turns)]
        text, with_marks = self(turns, tokenize=False, **options), self(marked, tokenize=False, **options)
        read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, mask = list(out["input_ids"]), list(out["assistant_masks"])
        if MARK.sub("", with_marks) != text or read["input_ids"] != ids:
            raise RunError(
                "a turn that is not to be learned cannot be found in the rendered text: leave it out of the data"
            )
        removed = 0
        for found in MARK.finditer(with_marks):
            place = found.start() - removed
            removed += len(found[0])
            token = next(i for i, (start, end) in enumerate(read["offset_mapping"]) if start < place <= end)
            for step in (1, -1):  # the loop sets the mask to 0 for the answer's tokens and its end token
                at = token if step == 1 else token - 1
                while 0 <= at < len(mask) and mask[at]:
                    mask[at] = 0
                    at += step
        return mask

    def marked(
        self, messages: Sequence[Mapping[str, object]], marks: Markers
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """For `row_comparison`, a pair: the messages with a marker in each text, and the template's arguments."""
        turns, carried = unpacked(messages)
        marked = [_turn(turn, number, marks) for number, turn in enumerate(turns)]
        tools = carried.get("tools")
        tools = json.loads(tools) if isinstance(tools, str) else tools or []
        options = carried.get("chat_template_kwargs") or {}
        return marked, {**options, "tools": [_tool(tool, marks) for tool in tools] or None}

    def _read(self, real: Callable[..., Any], turns: list[dict[str, Any]], options: Mapping[str, object]) -> object:
        if not any(isinstance(turn.get("content"), list) or turn.get("tool_calls") for turn in turns):
            return turns
        template = options.get("chat_template") or self.tokenizer.chat_template
        forms = found_forms(str(template), partial(real, tokenize=False, chat_template=template))
        return [in_form(turn, forms) for turn in turns]


MARK = re.compile(r" ?zQ\d+qZ")


def _with_mark(turn: Mapping[str, Any], number: int, marks: Markers) -> dict[str, object]:
    """An answer with a marker: in its content or, if it has no content, in the name of its first tool call."""
    out, loss = dict(turn), Loss("content", number, "")
    if isinstance(turn.get("content"), str) and turn["content"].strip():
        out["content"] = marks.text(turn["content"], loss)
    elif turn.get("tool_calls"):
        first, *rest = turn["tool_calls"]
        one = first.get("function", first)
        named = {**one, "name": one["name"] + marks.mark(loss)}
        out["tool_calls"] = [{**first, "function": named} if "function" in first else named, *rest]
    return out


def _turn(turn: Mapping[str, Any], number: int, marks: Markers) -> dict[str, Any]:
    """The turn with a marker in each text, tool call and reasoning."""
    role, out = str(turn.get("role")), dict(turn)
    text = turn.get("content")
    if isinstance(text, str):
        out["content"] = content(text, number, role, marks)
    elif isinstance(text, list):
        out["content"] = [{**part, "text": content(part["text"], number, role, marks, "part")} for part in text]
    for key in REASONING:
        if turn.get(key):
            out[key] = _marked_reasoning(turn[key], number, role, marks)
    if turn.get("tool_calls"):
        out["tool_calls"] = [_marked_call(call, number, marks, role) for call in turn["tool_calls"]]
    return out


def _marked_reasoning(value: object, number: int, role: str, marks: Markers) -> object:
    """The value of the key that holds a turn's reasoning, with a marker added to each text in it."""
    mark = partial(_marked_reasoning, number=number, role=role, marks=marks)
    if isinstance(value, dict):
        return value | {key: mark(one) for key, one in value.items() if key not in LABELS}
    if isinstance(value, str):
        return marks.text(value, Loss("reasoning", number, value[:40], role=role))
    return [*map(mark, value)] if isinstance(value, list) else value


def _marked_call(call: Any, number: int, marks: Markers, role: str) -> object:
    """A tool call with markers in its name and its arguments."""
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("function"), dict):
        return {**call, "function": _marked_call(call["function"], number, marks, role)}
    name, given = str(call.get("name")), call.get("arguments")
    out = {**call, "name": name + marks.mark(Loss("tool_call", number, name[:40], role=role))}
    try:
        read = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return out
    if isinstance(read, dict):
        arguments = _arguments(read, name, number, marks)
        out["arguments"] = json.dumps(arguments, ensure_ascii=False) if isinstance(given, str) else arguments
    return out


def _arguments(value: object, path: str, number: int, marks: Markers) -> object:
    """The arguments with each value replaced by a marker."""
    if isinstance(value, dict) and value:
        return {key: _arguments(one, f"{path}.{key}", number, marks) for key, one in value.items()}
    if isinstance(value, list) and value:
        return [_arguments(one, f"{path}[{index}]", number, marks) for index, one in enumerate(value)]
    return value if value in ({}, []) else marks.mark(Loss("argument", number, path[:60], role="assistant"))


def _tool(tool: object, marks: Markers) -> Any:
    """A copy of a tool with a marker in its name and one in its description. The markers show whether the chat template
    writes both.
    """
    if not isinstance(tool, dict):
        return tool
    if isinstance(tool.get("function"), dict):
        return {**tool, "function": _tool(tool["function"], marks)}
    name, described = str(tool.get("name")), tool.get("description")
    out = {**tool, "name": name + marks.mark(Loss("tool", None, name[:40]))}
    if isinstance(described, str):
        out["description"] = marks.text(described, Loss("tool", None, f"the description of {name[:40]}"))
    return out
