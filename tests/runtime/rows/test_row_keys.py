"""Some rows write tool calls, tools or keys of turns in an unusual way. The runtime reads them, refuses them, or
reports them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from xpc.compiler.data import row_shapes, structure
from xpc.compiler.data.inspectors import empty
from xpc.compiler.data.survey import survey
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.rows import FIELDS
from xpc.runtime.features.messages import call_forms, turn_notes
from xpc.runtime.features.rows import message_fields

ASK = {"role": "user", "content": "2 + 2?"}
TOOL = {"name": "add", "description": "Adds.", "parameters": {}}


def called(*calls: object, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **more}


@pytest.mark.parametrize(("call", "kind"), [
    ({"function": {"arguments": {"a": 2}}}, "unnamed_call"), ({"name": "", "arguments": {}}, "unnamed_call"),
    ("add", "unnamed_call"), ({"function": {"name": "add", "parameters": {"a": 2}}}, "moved_arguments"),
    ({"name": "add", "input": {"a": 2}}, "moved_arguments"),
    ({"name": "add", "arguments": "{}", "args": {"a": 2}}, "moved_arguments"),
    ({"name": "add", "arguments": [2]}, "odd_arguments"), ({"name": "add", "arguments": "2"}, "odd_arguments"),
    ({"name": "add"}, None), ({"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}, None),
    ({"name": "add", "arguments": {"a": 2}, "index": 0}, None),
])  # fmt: skip
def test_odd_calls_are_found_by_the_check_and_stop_the_run(call: object, kind: str | None) -> None:
    found = structure.structure([("assistant", called(call), "")]) - {"tool_calls"}
    assert found == ({kind} if kind else set())
    row = {"messages": [ASK, called(call)]}
    source = {"id": None, "path": "rows.jsonl", "columns": None}

    def read(any_arguments: bool) -> dict[str, Any]:
        return message_fields._read(lambda _, row, *__, **___: dict(row), (), any_arguments, source, row, 3)

    if kind is None:
        assert read(False)["messages"]
    else:
        with pytest.raises(RunError, match=r"rows.jsonl, row 3: .*omit=\[tool_calls\]"):
            read(False)
    assert read(True)["messages"]


@pytest.mark.parametrize(("weights", "right"), [((0, "0.0"), False), ((0, 1), True), (("false", None), True)])
def test_a_row_without_a_learned_answer_is_found_by_the_check_and_stops_the_run(weights: Any, right: bool) -> None:
    answers = [{"role": "assistant", "content": "4", "weight": one} for one in weights]
    row = {"messages": [ASK, answers[0], ASK, answers[1]]}
    seen = survey(json.dumps(row).encode(), "rows.jsonl", "messages", ("messages",))
    assert ("nothing_trained" in seen.tallies) == (not right)
    source = {"id": None, "path": "rows.jsonl", "columns": None}

    def read() -> dict[str, Any]:
        return message_fields._read(lambda _, row, *__, **___: dict(row), (), False, source, row, 3)

    if right:
        assert read()["messages"]
    else:
        with pytest.raises(RunError, match=r"rows.jsonl, row 3: no answer is to be learned"):
            read()


@pytest.mark.parametrize(("tools", "right"), [
    ([TOOL], True), ([{"type": "function", "function": TOOL}], True), (json.dumps([TOOL]), True),
    ([{"type": "web_search"}], True), ({"add": TOOL}, False), (["add"], False), ("add", False),
    ([{"type": "function"}], False), ([{"type": "function", "function": {"parameters": {}}}], False),
    ([TOOL, {"type": "function"}], False),
])  # fmt: skip
def test_tools_without_names_are_found_by_the_check_and_stop_the_run(tools: Any, right: bool) -> None:
    assert (structure.read_tools(tools) is not None) == right
    row = {"messages": [ASK, {"role": "assistant", "content": "4"}], "tools": tools}
    seen = survey(json.dumps(row).encode(), "rows.jsonl", "messages", ("messages",))
    assert ("odd_tools" in seen.tallies, "tools" in seen.tallies) == (not right, right)
    if right:
        assert all("type" in one for one in call_forms.described_tools(tools, "row 0"))
    else:
        with pytest.raises(RunError, match="row 0: the tools are not"):
            call_forms.described_tools(tools, "row 0")


@pytest.mark.parametrize("calls", [{"tool_calls": [{"name": "add"}]}, {"function_call": {"name": "add"}}])
def test_a_turn_with_a_call_needs_no_content(calls: dict[str, Any]) -> None:
    turn = {"role": "assistant", **calls}
    assert row_shapes.wrong_turns([ASK, turn], "role", "messages") is None
    assert message_fields.packed(turn, "row 0")["content"] == ""
    assert "needs a role and a content" in str(row_shapes.wrong_turns([ASK, {"role": "assistant"}], "role", "messages"))


def test_a_call_without_an_inner_object_is_written_for_templates_that_need_one() -> None:
    def render(turns: list[dict[str, Any]]) -> str:
        return "".join(json.dumps(one["function"]) for turn in turns for one in turn.get("tool_calls", ()))

    forms = call_forms.forms_of(render)
    flat = {"id": "7", "name": "add", "arguments": {"a": 2}}
    assert (forms.flat, forms.objects) == (False, True)
    (call,) = call_forms.in_form(called(flat), forms)["tool_calls"]
    assert call == {"id": "7", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    both = call_forms.forms_of(lambda turns: json.dumps(turns, ensure_ascii=False))
    assert both.flat
    assert call_forms.in_form(called(flat), both)["tool_calls"] == [flat]


def test_the_parts_of_a_content_are_joined_if_all_are_texts() -> None:
    parts: list[Any] = ["2 ", {"text": "+ "}, {"type": "text", "text": "2"}]
    assert message_fields.packed({"role": "user", "content": parts}, "row 0")["content"] == "2 + 2"
    for part, kind in (({"type": "text"}, "text"), ({"type": "image", "text": "2"}, "image"), (2, "int")):
        with pytest.raises(RunError, match=f"row 0: a message has a part of the type '{kind}'"):
            message_fields.packed({"role": "user", "content": [*parts, part]}, "row 0")


def test_texts_in_a_list_are_contents() -> None:
    assert not empty(["What?"])
    assert empty([" ", {"type": "text", "text": ""}])


class Tokenizer:
    """A tokenizer whose chat template writes the names of tools, and the key `mood` of a turn."""

    chat_template = "{% for turn in messages %}{{ turn.content }}{{ turn.mood }}{% endfor %}{{ tools[0].name }}"
    all_special_tokens = ("<|end|>", "")

    def apply_chat_template(self, turns: list[dict[str, Any]], tokenize: bool) -> str:
        return "".join(turn["content"] + json.loads(turn.get(FIELDS, "{}")).get("mood", "") for turn in turns)


@pytest.mark.parametrize(("turn", "notes"), [
    ({"thought": "Two."}, {"unread": "turn 1 (assistant) of messages has 'thought'"}),
    ({"mood": "glad"}, {}), ({"mood": ""}, {}), ({"id": "7"}, {}), ({"reasoning_content": "Two."}, {}),
    ({"name": "Ann"}, {"unread": "turn 1 (assistant) of messages has 'name'"}),
    ({"name": "add", "role": "tool"}, {}),
    ({"content": "4<|end|>"}, {"special": "turn 1 (assistant) of messages contains '<|end|>'"}),
])  # fmt: skip
def test_what_the_template_does_not_read_is_reported(turn: dict[str, Any], notes: dict[str, str]) -> None:
    made = message_fields.packed({"role": "assistant", "content": "4", **turn}, "row 0")
    assert dict(turn_notes.notes({"messages": [ASK, made]}, tokenizer=Tokenizer())) == notes


@pytest.mark.parametrize(("turn", "keys"), [
    ({"thought": "Two.", "name": "Ann"}, {"thought", "name"}), ({"thought": ""}, set()), ({"loss_weight": 1}, set()),
    ({"name": "add", "role": "tool"}, set()), ({"weight": 1, "id": "7", "reasoning": "x"}, set()),
])  # fmt: skip
def test_the_check_lists_the_keys_that_only_a_template_can_read(turn: dict[str, Any], keys: set[str]) -> None:
    found = structure.structure([(str(turn.get("role", "assistant")), turn, "4")])
    unread = {one.removeprefix(structure.UNREAD_KEY) for one in found if one.startswith(structure.UNREAD_KEY)}
    assert unread == keys
