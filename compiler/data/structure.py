"""Classify conversations by what their turns contain in addition to a role and a text, such as tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from xpc.runtime.core.row_names import REASONING
from xpc.runtime.features.messages.stored_columns import declined, number_of, visible
from xpc.runtime.features.messages.turn_names import CALL_KEYS, MARKS, MASKED, TRAINED

PLAIN = {"role", "content", "from", "value"}
TURN_KEY = "turn_key:"
"""The prefix of a property: `turn_key:learn` means that a turn has a key `learn`. Such a key probably says whether the
turn is learned, but no trainer reads the key.
"""

UNREAD_KEY = "unread_key:"
"""The prefix of a property: `unread_key:mood` means that a turn has a value under the key `mood`, which only a chat
template can read.
"""
READ_KEYS = ("id", "index", "type", "tool_call_id", "tool_calls", "function_call", *TRAINED, *MASKED, *REASONING)
"""Keys of a turn that get no property `unread_key:`: either the trainer reads them, or their values are not texts to
learn.
"""


def structure(turns: Sequence[tuple[str, Mapping[str, object], object]]) -> set[str]:
    """Return the properties of a conversation that rules report, as a set of names. Each element of `turns` is a role,
    the turn itself and its content.

    - `tool_calls`: a turn with a call; `several_calls`: with more than one; `text_with_call`: with both a text and a
      call
    - `call_in_text`: a turn with a call both in its text and in a field
    - `result_without_call`: a tool's result that follows a question or a system prompt instead of a call
    - `odd_arguments`: a call whose arguments are not a JSON object; `unnamed_call`: a call without a function's name
    - `moved_arguments`: a call without `arguments` that has another key, such as `parameters`
    - `reasoning_twice`: a turn has reasoning both in a field and in its content
    - `reasoning`: a turn has reasoning in a field; `early_reasoning`: a turn before the last question has it
    - `listed_reasoning`: a turn's field of reasoning contains a list or an object instead of a text
    - `inline_reasoning`, `early_inline_reasoning`: like `reasoning` and `early_reasoning`, but the reasoning is in the
      content, between <think> and </think>
    - `repeated_call_id`: two calls of one turn have the same id; `unknown_call_id`: a tool's result names a call that
      no turn before it has
    - `tool`, `developer`: a turn with this role
    - `nothing_trained`: every answer is marked as not learned
    - `untrained`: a turn that is marked as not learned; `turn_weight`: an answer with a `weight` other than 0 and 1
    - `turn_key:NAME`: a turn with a key such as `learn`, which seems to decide whether the turn is learned, but is
      ignored
    - `unread_key:NAME`: a turn with another key, which only a chat template can read
    """
    last = max((number for number, (role, _, _) in enumerate(turns) if role == "user"), default=-1)
    found: set[str] = set()
    before = ""
    for number, (role, turn, content) in enumerate(turns):
        if role == "tool" and before in ("", "user", "system"):
            found.add("result_without_call")
        before = role
        early = "early_" if number < last else ""
        if role in ("tool", "developer") and content:
            found.add(role)
        found |= {early + one for one in _reasoning(role, turn, content)}
        if any(turn.get(key) and isinstance(turn[key], list | dict) for key in REASONING):
            found.add("listed_reasoning")
        found.update(_calls(turn, content))
        found.update(_marks(role, turn))
    answers = [turn for role, turn, _ in turns if role == "assistant"]
    if "untrained" in found and answers and all("untrained" in _marks("assistant", turn) for turn in answers):
        found.add("nothing_trained")
    if "tool_calls" in found:
        found |= _call_ids(turns)
    return {one.replace("early_reasoning_twice", "reasoning_twice") for one in found}


def _reasoning(role: str, turn: Mapping[str, object], content: object) -> Iterator[str]:
    fields = [str(turn[key]).strip() for key in REASONING if visible(turn.get(key))]
    opened, closed, _ = content.partition("</think>") if role == "assistant" and isinstance(content, str) else ("",) * 3
    inline = opened.rpartition("<think>")[2].strip() if closed else ""
    if inline:
        yield "inline_reasoning"
    if fields and inline:
        yield "reasoning_twice"
    if any(one != inline for one in fields):
        yield "reasoning"


def _calls(turn: Mapping[str, object], content: object) -> Iterator[str]:
    calls = _calls_of(turn)
    if not calls:
        return
    yield "tool_calls"
    if isinstance(content, str) and "<tool_call>" in content:
        yield "call_in_text"
    if len(calls) > 1:
        yield "several_calls"
    if visible(content) or isinstance(content, list):
        yield "text_with_call"
    yield from {kind for kind in map(_wrong_call, calls) if kind is not None}


def _call_ids(turns: Sequence[tuple[str, Mapping[str, object], object]]) -> set[str]:
    """The faults of call ids in a conversation, under the names that `structure` lists: `repeated_call_id` and
    `unknown_call_id`.
    """
    found, known = set[str](), set[object]()
    for _, turn, _ in turns:
        ids = [one.get("id") for one in _calls_of(turn) if isinstance(one, dict)]
        ids = [one for one in ids if isinstance(one, str) and one]
        if len(set(ids)) < len(ids):
            found.add("repeated_call_id")
        known.update(ids)
        answered = turn.get("tool_call_id")
        if known and isinstance(answered, str) and answered and answered not in known:
            found.add("unknown_call_id")
    return found


def _calls_of(turn: Mapping[str, object]) -> list[object]:
    calls = turn.get("tool_calls") or ([turn["function_call"]] if turn.get("function_call") else [])
    return calls if isinstance(calls, list) else []


def _wrong_call(call: object) -> str | None:
    """The fault of a tool call, under one of the names that `structure` lists, or None. The runtime's `wrong_call`
    makes the same check.
    """
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not visible(function.get("name")):
        return "unnamed_call"
    given = function.get("arguments")
    given = None if isinstance(given, str) and given.strip() in ("", "null", "{}") else given
    if not given and any(value for key, value in function.items() if key not in CALL_KEYS):
        return "moved_arguments"
    return "odd_arguments" if odd_arguments(call) else None


def read_tools(value: object) -> list[dict[str, object]] | None:
    """The tools of a row, each in OpenAI's form. `value` is a list of tools with names, or the JSON text of such a
    list; for any other value, the result is None.
    """
    # imported only here, because few rows have tools
    from xpc.runtime.core.errors import RunError
    from xpc.runtime.features.messages.call_forms import described_tools

    try:
        found: list[dict[str, object]] = described_tools(value, "")
    except RunError:
        return None
    return found


def calls_unknown_tool(turns: object, tools: Sequence[Mapping[str, object]]) -> bool:
    """Whether a conversation calls a function that is not among the row's tools (see `read_tools`). False if one of the
    tools has no name.
    """
    described = [one.get("function", one) for one in tools]
    known = {one.get("name") if isinstance(one, dict) else None for one in described}
    if not all(isinstance(one, str) for one in known):
        return False
    for turn in turns if isinstance(turns, list) and known else ():
        for call in _calls_of(turn) if isinstance(turn, dict) else ():
            function = call.get("function", call) if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if isinstance(name, str) and name and name not in known:
                return True
    return False


def odd_arguments(call: object) -> bool:
    """Whether a tool call has arguments that are neither a JSON object nor the text of one. False if the arguments are
    missing.
    """
    function = call.get("function", call) if isinstance(call, dict) else None
    given = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else None
        except ValueError:
            return True
    return not isinstance(given, dict | None)


def _marks(role: str, turn: Mapping[str, object]) -> Iterator[str]:
    marks = [turn[key] for key in TRAINED if turn.get(key) is not None]
    if any(map(declined, marks)) or any(turn.get(key) in (True, 1) for key in MASKED):
        yield "untrained"
    elif role == "assistant" and any(isinstance(one, int | float) and one != 1 for one in map(number_of, marks)):
        yield "turn_weight"
    for key in turn.keys() - PLAIN - {*TRAINED, *REASONING}:
        if MARKS.search(key) and turn[key] is not None and (key not in MASKED or not isinstance(turn[key], int)):
            yield TURN_KEY + key[:40]
        elif turn[key] and key not in READ_KEYS and not (key == "name" and role == "tool"):
            yield UNREAD_KEY + key[:40]
