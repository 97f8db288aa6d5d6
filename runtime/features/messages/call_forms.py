"""Convert messages and tool calls from the form of the rows to the form that the chat template reads.

Some templates read the arguments of a call as an object, `{"city": "Paris"}`, others as its JSON text; some read a
content that is a list of parts, others only text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...core.errors import RunError

CALLERS = ("function_call", "tool_call")
"""Speakers of from/value conversations whose turns are tool calls as JSON text (LLaMA-Factory's ShareGPT rows)."""


def from_caller(turn: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The assistant's turn for a turn of a speaker in `CALLERS`. Raises RunError if its value is not a call."""
    calls = turn.get("value")
    try:
        calls = json.loads(calls) if isinstance(calls, str) else calls
    except ValueError:
        calls = None
    calls = calls if isinstance(calls, list) else [calls]
    functions = [one.get("function", one) if isinstance(one, dict) else None for one in calls or [None]]
    if not all(isinstance(one, dict) and "name" in one for one in functions):
        raise RunError(
            f"{where}: the value of a turn from {turn['from']!r} is not a call as JSON, such as "
            f'{{"name": "add", "arguments": {{}}}}: {str(turn.get("value"))[:40]}'
        )
    made = [{"type": "function", "function": one} for one in functions]
    return {**turn, "from": "gpt", "value": "", "tool_calls": made}


def described_tools(tools: Any, where: str) -> Any:
    """The tools of a row (a list, or its JSON text), each in OpenAI's form: `{"type": "function", "function": {...}}`.

    Rows of ShareGPT and OpenAI's older `functions` have only the inner object, and templates write a tool as it is
    given. Raises RunError for a text that is not JSON.
    """
    try:
        read = json.loads(tools) if isinstance(tools, str) else tools
    except ValueError as error:
        raise RunError(f"{where}: the tools are not JSON: {str(error)[:60]}") from error
    if not isinstance(read, list):
        return read
    bare = [isinstance(one, dict) and "name" in one and not one.keys() & {"type", "function"} for one in read]
    return [{"type": "function", "function": one} if alone else one for one, alone in zip(read, bare, strict=True)]


def with_arguments(calls: Sequence[Any]) -> list[Any]:
    """The tool calls of a row. Missing, null or empty arguments of a call become an empty object."""
    return [_with_arguments(call) if isinstance(call, dict) else call for call in calls]


def _with_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(call.get("function"), dict):
        return {**call, "function": _with_arguments(call["function"])}
    given = call.get("arguments")
    empty = given is None or (isinstance(given, str) and given.strip() in ("", "null"))
    return {**call, "arguments": {}} if empty and "name" in call else dict(call)


def odd_arguments(calls: Sequence[Any]) -> str | None:
    """A sentence about the first call with arguments that are neither an object nor the JSON text of one; or None."""
    for call in calls:
        one = call.get("function", call) if isinstance(call, dict) else {}
        given = one.get("arguments", {}) if isinstance(one, dict) else {}
        try:
            read = json.loads(given) if isinstance(given, str) else given
        except ValueError:
            read = None
        if not isinstance(read, dict):
            return f"the arguments of the call {str(one.get('name'))[:40]!r} are not a JSON object: {str(given)[:40]!r}"
    return None


class Forms(NamedTuple):
    """Which forms of a message a chat template reads."""

    parts: bool
    """A content may be a list of parts."""
    objects: bool
    """Arguments of tool calls may be an object."""
    texts: bool
    """Arguments of tool calls may be JSON text."""
    doubles: bool
    """Reasoning is written twice if a turn has it both in a key (`reasoning_content`) and in its content."""


FOUND: dict[str, Forms] = {}
"""The `Forms` of each template, by the template's text. They are not stored in `Renderer`, because the datasets library
names its cache of tokenized rows by a hash of the `Renderer` and everything in it.
"""


def in_form(turn: Mapping[str, Any], forms: Forms) -> dict[str, Any]:
    """The turn, converted to the forms that a template reads."""
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
        except ValueError:  # not JSON, which the spec allows by `data(omit=[tool_calls])`
            return call
    return call


def found_forms(template: str, render: Callable[..., str]) -> Forms:
    """The forms that this template reads; they are found at the first call and then remembered."""
    if template not in FOUND:
        FOUND[template] = forms_of(render)
    return FOUND[template]


def doubles(tokenizer: Any) -> bool:
    """Whether the chat template writes a turn's reasoning twice if it is both in a key and in the content.

    False for a tokenizer without a `Renderer`.
    """
    template = getattr(tokenizer, "chat_template", None)
    render: Any = getattr(getattr(tokenizer, "apply_chat_template", None), "real", None)
    if not template or render is None:
        return False
    return found_forms(str(template), partial(render(), tokenize=False)).doubles


def forms_of(render: Callable[..., str]) -> Forms:
    """Find the forms that a template reads, with small conversations, of which ``render`` returns the text."""
    question = {"role": "user", "content": "?"}
    parts = _rendered(render, [{"role": "user", "content": [{"type": "text", "text": "zqz"}]}])
    found = []
    for arguments in ({"zqk": "zqv"}, '{"zqk": "zqv"}'):
        call = {"id": "zqzqzqzqz", "type": "function", "function": {"name": "zqn", "arguments": arguments}}
        text = _rendered(render, [question, {"role": "assistant", "content": "", "tool_calls": [call]}])
        found.append("zqv" in text and '\\"zqv' not in text and "'zqk'" not in text)
    thought = {"role": "assistant", "content": "<think>\nzqi\n</think>\n\n.", "reasoning_content": "zqf"}
    thoughts = _rendered(render, [question, thought])
    doubles = "zqi" in thoughts and "zqf" in thoughts
    return Forms("zqz" in parts and "'text'" not in parts and '"text"' not in parts, found[0], found[1], doubles)


def _rendered(render: Callable[..., str], turns: list[dict[str, Any]]) -> str:
    try:
        return render(turns)
    except Exception:  # a template may raise anything
        return ""
