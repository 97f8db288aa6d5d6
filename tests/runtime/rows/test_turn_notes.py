"""Tool calls of rows are converted to one form. Keys of a turn, such as `weight`, can say that the turn has no loss."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from xpc.compiler.data import row_shapes, structure
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.rows import FIELDS, from_value
from xpc.runtime.features.messages import call_forms, turn_notes
from xpc.runtime.features.messages.turn_names import CALLERS
from xpc.runtime.features.method import reward_calls
from xpc.runtime.features.method.answer_ends import without_end
from xpc.runtime.features.rows import chat, message_fields
from xpc.runtime.features.rows import prompts as prompts_of_rows

CALL = '{"name": "add", "arguments": {"first": 2}}'


def turn(role: str = "assistant", content: str = "4", **fields: Any) -> dict[str, Any]:
    """A converted turn."""
    return {"role": role, "content": content, **({FIELDS: json.dumps(fields)} if fields else {})}


@pytest.mark.parametrize("speaker", CALLERS)
@pytest.mark.parametrize("value", [CALL, f"[{CALL}]", json.loads(CALL), f'{{"function": {CALL}}}'])
def test_a_turn_of_a_caller_is_a_tool_call(speaker: str, value: object) -> None:
    stored = {"from": speaker, "value": value}
    (made,) = from_value([message_fields.packed(stored, "row 0")], "row 0")
    assert (made["role"], made["content"]) == ("assistant", "")
    (one,) = json.loads(made[FIELDS])["tool_calls"]
    assert one["function"] == json.loads(CALL)
    known = row_shapes.from_caller(stored)
    assert row_shapes.wrong_turns([stored], "from", "conversations") is None
    assert "tool_calls" in structure.structure([("assistant", known, "")])


@pytest.mark.parametrize("value", ["Hello", "[]", "{}", '"add"', "[1]", "5", "true", 5, None])
def test_a_turn_of_a_caller_without_a_call_is_refused_by_both(value: object) -> None:
    stored = {"from": "function_call", "value": value}
    with pytest.raises(RunError, match=r"row 3: the value of a turn from 'function_call' must be a call in JSON"):
        message_fields.packed(stored, "row 3")
    assert "must be a call in JSON" in str(row_shapes.wrong_turns([stored], "from", "conversations"))


@pytest.mark.parametrize("given", ["", " ", None, "null", {}, "{}"])
def test_a_call_without_arguments_has_an_empty_object(given: object) -> None:
    (call,) = call_forms.with_arguments([{"function": {"name": "now", "arguments": given}}])
    assert call["function"]["arguments"] in ({}, "{}")
    assert call_forms.wrong_call([call]) is None
    assert not structure.odd_arguments({"function": {"name": "now", "arguments": given}})


@pytest.mark.parametrize("given", ["now", "[1]", '"x"', "3", [1], 3, '{"city":', True])
def test_arguments_that_are_no_object_stop_the_run(given: object) -> None:
    call = {"function": {"name": "now", "arguments": given}}
    assert structure.odd_arguments(call)

    def convert(source: object, row: Any, *_: object, **__: object) -> dict[str, Any]:
        return {"messages": row["messages"]}

    row = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
    source = {"id": None, "path": "rows.jsonl", "columns": None}
    with pytest.raises(RunError, match=r"row 2: the arguments of the call 'now' are not a JSON object: .*omit"):
        message_fields._read(convert, (), False, source, row, 2)
    assert message_fields._read(convert, (), True, source, row, 2)["messages"]  # omit = [tool_calls]


@pytest.mark.parametrize(("key", "value"), [("mask", True), ("masked", 1), ("mask", 1)])
def test_a_masked_turn_is_not_learned(key: str, value: object) -> None:
    assert message_fields.untrained({key: value})
    assert "untrained" in structure.structure([("assistant", {key: value}, "4")])


@pytest.mark.parametrize("value", ["0", "0.0", " 0 ", "false", "No", ""])
def test_a_weight_may_be_a_text(value: str) -> None:
    assert message_fields.untrained({"weight": value})
    assert "untrained" in structure.structure([("assistant", {"weight": value}, "4")])


@pytest.mark.parametrize("value", [False, 0, None])
def test_a_turn_that_is_not_masked_is_learned(value: object) -> None:
    assert not message_fields.untrained({"mask": value})
    assert structure.structure([("assistant", {"mask": value}, "4")]) == set()


@pytest.mark.parametrize(("fields", "kind"), [
    ({"weight": 0.5}, "weight"), ({"weight": "0.5"}, "weight"), ({"weight": 2}, "weight"),
    ({"loss_weight": 0}, "key"), ({"train_detail": []}, "key"),
    ({"weight": 0}, None), ({"weight": 1.0}, None), ({"weight": "1.0"}, None),
    ({"train": True}, None), ({"name": "x"}, None),
    ({"reasoning_content": "x"}, None),
])  # fmt: skip
def test_keys_of_turns_that_are_not_read(fields: dict[str, Any], kind: str | None) -> None:
    assert [one for one, _ in turn_notes.notes({"messages": [turn("user", "?"), turn(**fields)]})] == [kind] * (
        kind is not None
    )
    known = structure.structure([("assistant", fields, "4")])
    assert {one.partition(":")[0] for one in known} & {"turn_weight", "turn_key"} == (
        {"weight": {"turn_weight"}, "key": {"turn_key"}}.get(kind or "", set())
    )


def test_a_question_in_an_answer_is_learned() -> None:
    row = {"prompt": [turn("user")], "completion": [turn(), turn("user"), turn()]}
    assert list(turn_notes.notes(row)) == [("turn", "turn 1 (user) of completion is learned")]
    assert not list(turn_notes.notes(row, learned=turn_notes.learned_columns("sft", True)))
    assert not list(turn_notes.notes({"messages": row["completion"]}))
    # in a reward model, no turn of an answer has a loss
    whole = {"chosen": row["completion"], "rejected": row["completion"]}
    assert not list(turn_notes.notes(whole, learned=turn_notes.learned_columns("reward", False)))


@pytest.mark.parametrize("own", ["Be brief.", "Be polite.", None])
def test_a_second_system_prompt_is_reported(own: str | None) -> None:
    first = [] if own is None else [{"role": "system", "content": own}]
    row = {"messages": [*first, {"role": "user", "content": "?"}], "system": "Be brief."}
    source = {"id": None, "path": "rows.jsonl", "columns": None, "shape": "messages"}
    made = message_fields._read(chat.to_row, (), False, source, row, 0, system=row["system"])
    found = list(turn_notes.notes(made, tokenizer=SimpleNamespace(chat_template="{{ messages }}")))
    other = "turn 0 (system) of messages has a system prompt, in place of the row's column 'system'"
    assert found == ([("system", other)] if own == "Be polite." else [])


def test_reasoning_in_two_places_is_found() -> None:
    both = turn(content="<think>\n2, 2\n</think>\n\n4", reasoning_content="2, 2")
    assert turn_notes.doubled({"messages": [turn("user"), both]}) == (1, "2, 2")
    assert turn_notes.doubled({"messages": [turn(content="<think>2</think>4"), turn(reasoning="2")]}) is None


@pytest.mark.parametrize(("text", "always", "left"), [
    ("good<e>\n", False, "good<e>"), ("good<e>\n", True, "good"), ("good<e>", False, "good<e>"),
    ("good<t>\n", False, "good<t>\n"), ("good<t>\n", True, "good<t>\n"), ("a<e>\nb", True, "a<e>\nb"),
])  # fmt: skip
def test_an_answer_keeps_one_end_token(text: str, always: bool, left: str) -> None:
    assert without_end(text, "<e>", always) == left


def test_rewards_get_the_messages_of_the_rows() -> None:
    prompts = [[turn("user", "2?", name="ada", tools=[])], "text"]
    assert reward_calls.own_messages(prompts) == [[{"role": "user", "content": "2?", "name": "ada"}], "text"]
    assert reward_calls.own_messages([[{"role": "user", "content": "2?", FIELDS: None}]]) == [
        [{"role": "user", "content": "2?"}]
    ]


def test_a_reward_sees_no_key_of_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def reward(prompts: list[Any], completions: list[Any]) -> list[float]:
        seen.extend(prompts)
        return [1.0] * len(completions)

    monkeypatch.setattr(reward_calls, "_problem", lambda *_: None)  # the check of the results would import torch
    prompts = [[turn("user", "2?", chat_template_kwargs={"enable_thinking": False})]]
    assert reward_calls.checked(reward)(prompts=prompts, completions=["4"]) == [1.0]
    assert seen == [[{"role": "user", "content": "2?"}]]


def test_columns_with_names_of_the_trainers_arguments_are_dropped() -> None:
    source = {"shape": "prompt", "columns": None, "only": False}
    present = ["prompt", "solution", "prompts", "completions", "completion_ids"]
    assert prompts_of_rows.dropped(source, present, "grpo") == ["prompt", "prompts", "completions", "completion_ids"]


@pytest.mark.parametrize("form", [list, json.dumps])
def test_a_tool_alone_is_a_function(form: Any) -> None:
    tool, described = {"name": "add", "parameters": {}}, {"type": "function", "function": {"name": "add"}}
    made = call_forms.described_tools(form([tool, described]), "row 0")
    assert made == [{"type": "function", "function": tool}, described]


@pytest.mark.parametrize(
    "written",
    [
        {"name": "add", "input_schema": {"type": "object"}},  # Anthropic
        {"type": "custom", "name": "add", "input_schema": {"type": "object"}},
        {"name": "add", "inputSchema": {"type": "object"}},  # MCP
        {"type": "function", "name": "add", "parameters": {"type": "object"}},  # OpenAI's API of responses
    ],
)
def test_tools_of_other_interfaces_get_the_form_of_openai(written: dict[str, Any]) -> None:
    made = call_forms.described_tools([written], "row 0")
    assert made == [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    assert call_forms.described_tools(made, "row 0") == made


def test_tools_that_are_no_json_are_refused() -> None:
    with pytest.raises(RunError, match="row 4: the tools are not JSON"):
        call_forms.described_tools("[add", "row 4")


@pytest.mark.slow
@pytest.mark.parametrize("solution", [None, 4, ["4"]])
def test_a_solution_without_a_text_has_no_reward(solution: object) -> None:
    pytest.importorskip("trl")
    pytest.importorskip("math_verify")
    from xpc.runtime.features.method.rewards import verified

    assert verified(["$4$", "$\\boxed{4}$"], [solution, "$4$"]) == [None, 1.0]  # type: ignore[list-item]
