"""The rules know which turns a chat template allows, and compare them with local rows. The help of a finding names what
is legal on the spec's stack. With the setting `omit`, the template may drop parts of a row.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from case_support import spec
from compile_support import checked, put

from xpc.compiler import stacks
from xpc.compiler.stacks import STACKS

TINY = {
    "tiny/config.json": json.dumps({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
        "max_position_embeddings": 2048, "tie_word_embeddings": True, "torch_dtype": "float32"}),
    "tiny/tokenizer_config.json": '{"eos_token": "</s>"}',
}  # fmt: skip
ALTERNATING = "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }} eos_token"
ASK, ANSWER = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "two"}}]}


def found(tmp_path: Path, row: dict[str, Any], *settings: str, train: str = "qwen2.5-3b-instruct") -> dict[str, str]:
    """Check a file with one row. Return a mapping from the code of each finding to its severity and help."""
    files = {**TINY, "tiny/chat_template.jinja": ALTERNATING, "rows.jsonl": json.dumps(row) + "\n"}
    text = spec(*settings, train=f'{train} on "rows.jsonl" for 3 epochs')
    return {one.code: f"{one.severity}: {one.help}" for one in checked(text, put(tmp_path, files)).problems}


@pytest.mark.parametrize(("target", "able"), [("trl-1.16", True), ("trl-0.18", False)])
def test_a_help_names_only_a_loss_that_the_target_has(target: str, able: bool, tmp_path: Path) -> None:
    completion = [ANSWER, ASK, {**ANSWER, "loss_weight": 0}]
    codes = found(tmp_path, {"prompt": [ASK], "completion": completion}, f"target {target}", "chat_template = qwen3")
    for code in ("XP548", "XP549"):
        assert ("assistant_only" in codes[code]) == able, codes[code]
    declined = {"messages": [ASK, {**ANSWER, "weight": 0}, ASK, ANSWER]}
    codes = found(tmp_path, declined, f"target {target}", "chat_template = qwen3")
    assert ("assistant_only" in codes["XP539"]) == able


@pytest.mark.parametrize("turns", [[ASK, ASK, ANSWER], [ANSWER, ASK, ANSWER], [ASK, ANSWER, ANSWER]])
def test_a_template_of_the_model_says_that_turns_alternate(turns: list[Any], tmp_path: Path) -> None:
    codes = found(tmp_path, {"messages": turns}, train='"tiny"')
    assert codes["XP537"].startswith("warning: join or move such turns")
    assert "XP537" not in found(tmp_path, {"messages": [ASK, ANSWER, ASK, ANSWER]}, train='"tiny"')


def test_other_orders_are_no_finding_for_a_template_that_writes_them(tmp_path: Path) -> None:
    codes = found(tmp_path, {"messages": [ANSWER, ASK, ASK, ANSWER, ANSWER]}, "chat_template = qwen2.5")
    assert not codes.keys() & {"XP537", "XP538"}


@pytest.mark.parametrize("answers", [("prompt", "completion"), ("chosen", "rejected")])
def test_the_order_of_a_prompt_with_its_answer(answers: tuple[str, str], tmp_path: Path) -> None:
    row = {answers[0]: [ASK], answers[1]: [ASK, ANSWER]}
    if answers[0] == "chosen":
        row = {"chosen": [ASK, ASK, ANSWER], "rejected": [ASK, ASK, {**ANSWER, "content": "5"}]}
    method = "method sft" if answers[0] == "prompt" else "method dpo"
    assert "XP537" in found(tmp_path, row, method, "chat_template = mistral")


def test_omit_allows_other_arguments_and_both_reasonings(tmp_path: Path) -> None:
    thought = {**ANSWER, "content": "<think>2, 2</think>4", "reasoning_content": "2, 2"}
    for turn, code, name in ((CALL, "XP547", "tool_calls"), (thought, "XP537", "reasoning")):
        row = {"messages": [ASK, turn]}
        assert code in found(tmp_path, row, "chat_template = qwen3")
        assert code not in found(tmp_path, row, "chat_template = qwen3", f"data(omit=[{name}])")


def test_the_same_reasoning_twice_is_not_lost_by_a_template_of_contents(tmp_path: Path) -> None:
    thought = {**ANSWER, "content": "<think>2, 2</think>4", "reasoning_content": "2, 2"}
    assert "XP537" not in found(tmp_path, {"messages": [ASK, thought]}, "chat_template = chatml")


@pytest.mark.parametrize(("column", "row", "shape"), [
    ("conversation", [ASK, ANSWER], "messages"),
    ("conversation", [{"from": "human", "value": "?"}], "conversations"),
    ("exchange", [ASK, ANSWER], "messages"),
])  # fmt: skip
def test_the_help_for_unknown_columns_reads_the_turns(column: str, row: Any, shape: str, tmp_path: Path) -> None:
    help = found(tmp_path, {"id": 1, column: row})["XP124"]
    assert f"`data(format={shape}, columns=[{column}])`" in help
    settings = (f"data(format={shape}, columns=[{column}])", "chat_template = qwen3")
    row = row if len(row) > 1 else [*row, {"from": "gpt", "value": "4"}]
    assert not {"XP124", "XP554"} & found(tmp_path, {"id": 1, column: row}, *settings).keys()


def test_the_help_for_a_speaker_can_be_written(tmp_path: Path) -> None:
    row = {"conversations": [{"from": "the customer", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]}
    assert '`data(user_roles=["the customer"])`' in found(tmp_path, row)["XP554"]
    assert "XP554" not in found(tmp_path, row, 'data(user_roles=["the customer"])')


@pytest.mark.parametrize("turn", [{"role": "tool", "content": "4"}, {"role": "critic", "content": "Hm."}, ASK])
@pytest.mark.parametrize("method", ["dpo", "kto", "sft", "orpo"])
def test_an_answer_begins_with_the_assistants_turn_on_a_stack_that_requires_it(
    turn: Any, method: str, tmp_path: Path
) -> None:
    row = {"prompt": [ASK], "completion": [turn, ANSWER]}
    if method != "sft":
        row = {"prompt": [ASK], "chosen": [turn, ANSWER], "rejected": [{**ANSWER, "content": "5"}]}
    texts = {target: found(tmp_path, row, f"method {method}", f"target {target}", "chat_template = zephyr")
             for target in STACKS}  # fmt: skip
    refusing = {target for target in STACKS if stacks.load(target).facts.prompts_begin_rows}
    assert {target for target, one in texts.items() if one["XP548"].startswith("error")} == refusing
    plain = found(tmp_path, row, f"method {method}", f"target {min(refusing)}", "chat_template = mistral")
    assert not plain["XP548"].startswith("error")  # in this template, nothing separates a question from its answer


@pytest.mark.parametrize(
    ("name", "content", "help"),
    [
        ("rows.csv", "prompt,completion\n?,None\n", "; in a CSV file, a cell such as `NA` or `None` is read as empty"),
        ("rows.jsonl", '{"messages": "[]"}\n', "write a list of turns there instead of a text"),
    ],
)
def test_help_for_a_row_that_looks_right(tmp_path: Path, name: str, content: str, help: str) -> None:
    (tmp_path / name).write_text(content * 8 if name.endswith("l") else content, encoding="utf-8")
    problems = checked(spec(train=f'qwen2.5-3b-instruct on "{name}" for 3 epochs'), tmp_path).problems
    assert help in str({one.code: one.help for one in problems}["XP554"])


def test_answers_of_a_role_in_capitals_are_not_missed(tmp_path: Path) -> None:
    """XP532 names the role. XP533 does not say that the answers are missing."""
    turns = [{"role": "User", "content": "?"}, {"role": "Assistant", "content": "!"}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": turns}) * 8)
    problems = checked(spec(train='qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'), tmp_path).problems
    assert {one.code: one.severity for one in problems if one.code in ("XP532", "XP533")} == {"XP532": "error"}


@pytest.mark.parametrize(("answers", "severity"), [(["", "4"], "warning"), (["", " "], "error")])
def test_an_empty_turn_in_every_row_is_an_error_only_without_other_answers(
    answers: list[str], severity: str, tmp_path: Path
) -> None:
    turns = [{"role": role, "content": text} for one in answers for role, text in (("user", "?"), ("assistant", one))]
    (tmp_path / "rows.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 8)
    problems = checked(spec(train='qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'), tmp_path).problems
    assert [one.severity for one in problems if one.code == "XP533"] == [severity]
