"""Convert messages and tool calls from the form of the rows to the form that the chat template reads.

Some templates read the arguments of a tool call as an object, `{"city": "Paris"}`; other templates read them as JSON
text. Some templates read a message's content as a list of parts, others only as text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...core.errors import RunError
from ...core.feature import Tokenizer
from .turn_names import CALL_KEYS, CALLERS

SCHEMAS = ("input_schema", "inputSchema")
"""Keys for the `parameters` of a tool in Anthropic's API (`input_schema`) and in MCP (`inputSchema`)."""


def has_callers(column: object) -> bool:
    """Whether any turn in a column of conversations is from a speaker in `CALLERS`, whose turns are tool calls."""
    import pyarrow
    import pyarrow.compute as compute

    speakers = compute.struct_field(compute.list_flatten(column), "from")
    return bool(compute.any(compute.is_in(speakers, value_set=pyarrow.array(CALLERS))).as_py())


def from_caller(turn: Mapping[str, object], where: str) -> dict[str, Any]:
    """Convert a turn of a speaker in `CALLERS` to an assistant's turn. Raises RunError if it has no tool call."""
    calls = turn.get("value")
    try:
        calls = json.loads(calls) if isinstance(calls, str) else calls
    except ValueError:
        calls = None
    calls = calls if isinstance(calls, list) else [calls]
    functions = [one.get("function", one) if isinstance(one, dict) else None for one in calls or [None]]
    if not all(isinstance(one, dict) and "name" in one for one in functions):
        raise RunError(
            f"{where}: the value of a turn from {turn['from']!r} must be a call in JSON, such as "
            f'{{"name": "add", "arguments": {{}}}}: {str(turn.get("value"))[:40]}'
        )
    made = [{"type": "function", "function": one} for one in functions]
    return {**turn, "from": "gpt", "value": "", "tool_calls": made}


def described_tools(tools: Any, where: str) -> Any:
    """The tools of a row (a list, or its JSON text), each in OpenAI's form: `{"type": "function", "function": {...}}`.

    Rows of ShareGPT and OpenAI's older `functions` have only the inner object, which a template would write without the
    outer one. OpenAI's newer API puts `type` into the inner object; Anthropic's API and MCP call the parameters
    `input_schema`. Raises RunError for a text that is not JSON, and for a value that is no list of tools.
    """
    try:
        read = json.loads(tools) if isinstance(tools, str) else tools
    except ValueError as error:
        raise RunError(f"{where}: the tools are not JSON: {str(error)[:60]}") from error
    if not isinstance(read, list) or not all(map(_is_tool, read)):
        raise RunError(f"{where}: the tools are not a list of objects that each have a name: {str(tools)[:40]}")
    return [_in_openai_form(one) for one in read]


def _in_openai_form(tool: dict[str, object]) -> dict[str, object]:
    if isinstance(tool.get("function"), dict):
        return tool if "type" in tool else {"type": "function", **tool}
    other = any(isinstance(tool.get(key), dict) for key in SCHEMAS)
    if "name" not in tool or not (other or tool.get("type", "function") == "function"):
        return tool
    inner = {key: value for key, value in tool.items() if key != "type"}
    for key in SCHEMAS:
        if isinstance(inner.get(key), dict) and "parameters" not in inner:
            inner = {"parameters" if name == key else name: value for name, value in inner.items()}
    return {"type": "function", "function": inner}


def _is_tool(tool: object) -> bool:
    """Whether a tool has a name, or is a tool of a type other than `function`, such as `web_search`."""
    if not isinstance(tool, dict):
        return False
    described = tool.get("function", tool)
    named = isinstance(described, dict) and isinstance(described.get("name"), str)
    return named or (isinstance(tool.get("type"), str) and tool["type"] != "function")


def with_arguments(calls: Sequence[object]) -> list[Any]:
    """The tool calls of a row. Missing, null or empty arguments of a call become an empty object."""
    return [_with_arguments(call) if isinstance(call, dict) else call for call in calls]


def _with_arguments(call: Mapping[str, Any]) -> dict[str, object]:
    if isinstance(call.get("function"), dict):
        return {**call, "function": _with_arguments(call["function"])}
    given = call.get("arguments")
    empty = given is None or (isinstance(given, str) and given.strip() in ("", "null"))
    return {**call, "arguments": {}} if empty and "name" in call else dict(call)


def wrong_call(calls: Sequence[object]) -> str | None:
    """A sentence about the first invalid call, or None. A call is invalid if it does not name its function, if its
    arguments are under another key, or if they are neither an object nor the JSON text of an object.
    """
    for call in calls:
        one = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not one["name"]:
            return f"a tool call does not name its function: {str(call)[:60]}"
        given = one.get("arguments", {})
        other = next((key for key, value in one.items() if key not in CALL_KEYS and value), None)
        try:
            read = json.loads(given) if isinstance(given, str) else given
        except ValueError:
            read = None
        if read == {} and other is not None:
            return f"the call {one['name'][:40]!r} has {other[:40]!r} instead of `arguments`"
        if not isinstance(read, dict):
            return f"the arguments of the call {one['name'][:40]!r} are not a JSON object: {str(given)[:40]!r}"
    return None


class Forms(NamedTuple):
    """The forms of a message that a chat template reads."""

    parts: bool
    """Whether a content may be a list of parts."""
    objects: bool
    """Whether the arguments of tool calls may be an object."""
    texts: bool
    """Whether the arguments of tool calls may be JSON text."""
    flat: bool
    """Whether a call may be `{"name": ..., "arguments": ...}`, without an object `function` around both."""
    doubles: bool
    """Whether reasoning is written twice if a turn has it both in a key (`reasoning_content`) and in its content."""


FOUND: dict[str, Forms] = {}
"""Maps the text of each template to its `Forms`. The forms are not in `Renderer`: the datasets library names its cache
of tokenized rows by a hash that covers everything in the `Renderer`."""


def in_form(turn: Mapping[str, Any], forms: Forms) -> dict[str, object]:
    """The turn, converted to the forms that a template reads."""
    turn = dict(turn)
    if isinstance(turn.get("content"), list) and not forms.parts:
        turn["content"] = "".join(part["text"] for part in turn["content"])
    if turn.get("tool_calls"):
        turn["tool_calls"] = [_call(call, forms) for call in turn["tool_calls"]]
    return turn


def _call(call: Any, forms: Forms) -> object:
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("function"), dict):
        return {**call, "function": _with_form(call["function"], forms)}
    if "name" in call and not forms.flat:
        inner = {key: call[key] for key in ("name", "arguments") if key in call}
        outer = {key: value for key, value in call.items() if key not in inner}
        return {"type": "function", **outer, "function": _with_form(inner, forms)}
    return _with_form(call, forms)


def _with_form(call: Mapping[str, object], forms: Forms) -> dict[str, object]:
    """The call with its arguments as the template reads them: as an object, or as a string of JSON."""
    given = call.get("arguments")
    if isinstance(given, dict | list) and forms.texts and not forms.objects:
        return {**call, "arguments": json.dumps(given, ensure_ascii=False)}
    if isinstance(given, str) and not forms.texts:
        try:
            return {**call, "arguments": json.loads(given)}
        except ValueError:
            # with `data(omit=[tool_calls])`, the arguments may be something other than JSON
            return dict(call)
    return dict(call)


def found_forms(template: str, render: Callable[..., str]) -> Forms:
    """The forms of messages that this template reads. They are determined once for each template."""
    if template not in FOUND:
        FOUND[template] = forms_of(render)
    return FOUND[template]


def doubles(tokenizer: Tokenizer) -> bool:
    """Whether the chat template writes a turn's reasoning twice if the turn has it both in a key and in its content.

    False for a tokenizer without a `Renderer`.
    """
    template = getattr(tokenizer, "chat_template", None)
    render: Any = getattr(getattr(tokenizer, "apply_chat_template", None), "real", None)
    if not template or render is None:
        return False
    return found_forms(str(template), partial(render(), tokenize=False)).doubles


def forms_of(render: Callable[..., str]) -> Forms:
    """Find the forms that a template reads, by rendering small conversations. ``render`` returns the text of a
    conversation."""
    question = {"role": "user", "content": "?"}
    parts = _rendered(render, [{"role": "user", "content": [{"type": "text", "text": "zqz"}]}])
    found = []
    for arguments in ({"zqk": "zqv"}, '{"zqk": "zqv"}'):
        call = {"id": "zqzqzqzqz", "type": "function", "function": {"name": "zqn", "arguments": arguments}}
        text = _rendered(render, [question, {"role": "assistant", "content": "", "tool_calls": [call]}])
        found.append("zqv" in text and '\\"zqv' not in text and "'zqk'" not in text)
    call = {"id": "zqzqzqzqz", "name": "zqn", "arguments": {"zqk": "zqv"} if found[0] else '{"zqk": "zqv"}'}
    text = _rendered(render, [question, {"role": "assistant", "content": "", "tool_calls": [call]}])
    flat = "zqn" in text and "zqv" in text
    thought = {"role": "assistant", "content": "<think>\nzqi\n</think>\n\n.", "reasoning_content": "zqf"}
    thoughts = _rendered(render, [question, thought])
    doubles = "zqi" in thoughts and "zqf" in thoughts
    joins = "zqz" in parts and "'text'" not in parts and '"text"' not in parts
    return Forms(joins, found[0], found[1], flat, doubles)


def _rendered(render: Callable[..., str], turns: list[dict[str, Any]]) -> str:
    try:
        return render(turns)
    except Exception:  # a template may raise any exception
        return ""
