"""Messages between the stored rows and the chat template.

trl gets every message as texts, so that all rows of a run have one type: its role, its content, and under ``FIELDS``
its other keys as JSON. `Renderer` gives the chat template the message with its keys again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .errors import RunError

FIELDS = "fields"
KEPT = ("tools", "chat_template_kwargs")
"""Columns of a row that its first message carries: a template needs them together, and trl passes them on for some
methods only."""


def packed(turn: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A message for trl. Parts of a content are joined, and kept for templates that read them. Raises RunError for a
    part that is not text."""
    content = turn.get("content")
    fields = {key: value for key, value in turn.items() if key not in ("role", "content") and value is not None}
    if isinstance(content, list):
        fields["content"] = [{"type": "text", "text": _text(part, where)} for part in content]
        content = "".join(part["text"] for part in fields["content"])
    message = {"role": turn["role"], "content": "" if content is None else content}
    if fields:
        message[FIELDS] = json.dumps(fields, ensure_ascii=False)
    return message


def _text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in (None, "text") and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise RunError(f"{where}: a message has a part of the type {str(kind)[:40]!r}, and only text is trained on")


def without_nulls(value: Any) -> Any:
    """The value without null keys: a Parquet file stores null for each key that only other rows have."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def carried_by_first(made: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """A converted row whose first message carries the columns ``kept``."""
    begins = [name for name in ("messages", "prompt") if isinstance(made.get(name), list)]
    out = dict(made)
    for name in begins or [name for name in ("chosen", "rejected") if isinstance(made.get(name), list)]:
        first, *rest = made[name]
        fields = {**json.loads(first.get(FIELDS) or "{}"), **kept}
        out[name] = [{**first, FIELDS: json.dumps(fields, ensure_ascii=False)}, *rest]
    return out


def unpacked(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages with their own keys, and what the first carries for all of them."""
    turns = [
        {key: one for key, one in {**turn, **json.loads(turn.get(FIELDS) or "{}")}.items() if key != FIELDS}
        for turn in messages
    ]
    carried = {name: turns[0].pop(name) for name in KEPT if turns and name in turns[0]}
    return turns, carried


class Forms(NamedTuple):
    """The forms that a chat template reads."""

    parts: bool
    """A content may be a list of parts."""
    objects: bool
    """Arguments of tool calls may be an object."""
    texts: bool
    """Arguments of tool calls may be JSON text."""


FOUND: dict[str, Forms] = {}
"""By the text of a template. It is no attribute of `Renderer`, whose digest names the cache of tokenized rows."""


class Renderer:
    """Replaces ``apply_chat_template`` of a tokenizer: every message in the forms that the chat template reads."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, conversation: Any, tools: Any = None, **options: Any) -> Any:
        """What the tokenizer's method returns."""
        real = partial(type(self.tokenizer).apply_chat_template, self.tokenizer)
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
        return real(self._read(real, turns, options), tools=tools or None, **options)

    def _read(self, real: Callable[..., Any], turns: list[dict[str, Any]], options: Mapping[str, Any]) -> Any:
        if not any(isinstance(turn.get("content"), list) or turn.get("tool_calls") for turn in turns):
            return turns
        template = options.get("chat_template") or self.tokenizer.chat_template
        forms = FOUND.get(str(template))
        if forms is None:
            forms = FOUND[str(template)] = forms_of(partial(real, tokenize=False, chat_template=template))
        return [_in_form(turn, forms) for turn in turns]


def _in_form(turn: Mapping[str, Any], forms: Forms) -> dict[str, Any]:
    turn = dict(turn)
    if isinstance(turn.get("content"), list) and not forms.parts:
        turn["content"] = "".join(part["text"] for part in turn["content"])
    if turn.get("tool_calls"):
        turn["tool_calls"] = [_call(call, forms) for call in turn["tool_calls"]]
    return turn


def _call(call: Any, forms: Forms) -> Any:
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        return {**call, "function": _call(call["function"], forms)}
    given = call.get("arguments") if isinstance(call, dict) else None
    if isinstance(given, dict | list) and forms.texts and not forms.objects:
        return {**call, "arguments": json.dumps(given, ensure_ascii=False)}
    if isinstance(given, str) and not forms.texts:
        try:
            return {**call, "arguments": json.loads(given)}
        except ValueError:
            return call
    return call


def forms_of(render: Callable[..., str]) -> Forms:
    """The forms that a template reads; ``render`` gives the text of a conversation."""
    question = {"role": "user", "content": "?"}
    parts = _rendered(render, [{"role": "user", "content": [{"type": "text", "text": "zqz"}]}])
    found = []
    for arguments in ({"zqk": "zqv"}, '{"zqk": "zqv"}'):
        call = {"id": "zqzqzqzqz", "type": "function", "function": {"name": "zqn", "arguments": arguments}}
        text = _rendered(render, [question, {"role": "assistant", "content": "", "tool_calls": [call]}])
        found.append("zqv" in text and '\\"zqv' not in text and "'zqk'" not in text)
    return Forms("zqz" in parts and "'text'" not in parts and '"text"' not in parts, *found)


def _rendered(render: Callable[..., str], turns: list[dict[str, Any]]) -> str:
    try:
        return render(turns)
    except Exception:  # a template may raise anything
        return ""
