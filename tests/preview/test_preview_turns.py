"""Which tokens of a row have a loss, on every stack: end tokens, user turns inside answers, tool calls, reasoning, and
rows with weights.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from emitted import put
from interpreters import OTHERS, methods_of
from tiers import FIRST_AND_LAST, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS, load

if TYPE_CHECKING:
    from method_runs import Warm

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
ASK, GOOD, BAD = (
    {"role": role, "content": text} for role, text in (("user", "1+1?"), ("assistant", "2"), ("assistant", "3"))
)
PAIR = {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]}
JUDGED = {"prompt": [ASK], "completion": [GOOD], "label": True}
COMPARED = {"dpo": PAIR, "orpo": PAIR, "cpo": PAIR, "kto": JUDGED}
TALK = {"prompt": [ASK], "completion": [GOOD, {"role": "user", "content": "And why?"}, BAD]}
CALL = '{"name": "add", "arguments": ""}'
CALLED = {"conversations": [{"from": "human", "value": "1+1?"}, {"from": "function_call", "value": CALL},
                            {"from": "observation", "value": "2"}, {"from": "gpt", "value": "It is 2."}]}  # fmt: skip


def first(warm: Warm, name: str, row: dict[str, Any], target: str, *more: str, seq: int = 256) -> Any:
    """Preview a spec of one row in the stack's interpreter; return the row from the worker's answer."""
    put(warm.location, {f"{name}.jsonl": lines([row] * 4)})
    text = spec(*more, data=f'"{name}.jsonl"', length="1 steps", target=target, sizes=f"gbs=4 micro=2 seq={seq}")
    bundle, out = warm.compiled(text, name), os.path.join(warm.location, f"{name}.answer.json")
    done = warm.of(target).run(bundle, bundle, bundle, out, "1", "rows", program=os.path.join(HERE, "prepared.py"))
    assert done["status"] == [0], f"{done['out'][-2000:]}\n{done['err'][-4000:]}"
    with open(out, encoding="utf-8") as handle:
        return json.load(handle)["rows"][0]


def learned(sequence: Any) -> str:
    """The text of the tokens that have a loss."""
    return "".join(text for _, text, bears, _ in sequence["tokens"] if bears)


CASES = [
    (target, method) for target in STACKS for method in COMPARED if target == DEFAULT or method in methods_of(target)
]


@pytest.mark.parametrize(("target", "method"), nightly_but(CASES, lambda one: one[0] in (DEFAULT, OTHERS[0])))
def test_an_answer_that_is_compared_ends_once(warm: Warm, target: str, method: str) -> None:
    """If a preference answer ends with an end token and a line break, TRL appends a second end token. A bundle prevents
    this.
    """
    row = first(warm, f"{target}-{method}", COMPARED[method], target, f"method {method}", "chat_template = qwen2.5")
    assert row["sequences"]
    for one in row["sequences"]:
        text = learned(one)
        assert text.startswith(("2", "3"))
        assert text.count("<|im_end|>") == 1, text
    assert not [one for one in row["verdicts"] if one["code"] == "XP592"]


@pytest.mark.parametrize("method", ["sft", "kto"])
@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_question_in_an_answer_is_learned_and_reported(warm: Warm, target: str, method: str) -> None:
    """The help names a loss on answers only if the method has it on this stack."""
    talk = {**TALK, "label": True} if method == "kto" else TALK
    row = first(warm, f"{target}-{method}-question", talk, target, f"method {method}", "chat_template = qwen2.5")
    assert "And why?" in learned(row["sequences"][0])
    masks = method == "sft" and load(target).facts.assistant_only_loss
    help = "write `method sft(assistant_only)`" if masks else "move the turns before the last answer into `prompt`"
    assert [(one["code"], one["help"]) for one in row["verdicts"]] == [("XP548", help)]


def test_only_answers_are_learned_where_they_are_marked(warm: Warm) -> None:
    row = first(warm, "marked", TALK, DEFAULT, "chat_template = qwen2.5", "method sft(assistant_only)")
    assert "And why?" not in learned(row["sequences"][0])
    assert learned(row["sequences"][0]).count("<|im_end|>") == 2
    assert row["verdicts"] == []


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_call_of_sharegpt_is_a_tool_call(warm: Warm, target: str) -> None:
    row = first(warm, f"{target}-call", CALLED, target, "chat_template = qwen2.5")
    text = "".join(token[1] for token in row["sequences"][0]["tokens"])
    assert '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>' in text
    assert "<tool_response>\n2\n</tool_response>" in text
    assert row["verdicts"] == []


def test_reasoning_in_two_places_is_reported(warm: Warm) -> None:
    answer = {"role": "assistant", "content": "<think>\nOne.\n</think>\n\n2", "reasoning_content": "One."}
    row = first(warm, "twice", {"messages": [ASK, answer]}, DEFAULT, "chat_template = qwen3", "data(omit=[reasoning])")
    assert [(one["code"], one["severity"]) for one in row["verdicts"]] == [("XP599", "note")]


TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALLING = [ASK, {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "function": {"name": "add", "arguments": {"of": 1}}}]},
    {"role": "tool", "content": "2"}, {"role": "tool", "content": "2"}, GOOD]  # fmt: skip
THINKING = [ASK, {"role": "assistant", "content": "<think>One.</think>2"}, {"role": "user", "content": "And why?"}, BAD]


@pytest.mark.parametrize(("name", "messages", "answers"), [
    ("calling", CALLING, {1: ["<tool_call>", "</tool_call><|im_end|>"], 4: ["2<|im_end|>"]}),
    ("thinking", THINKING, {1: ["2<|im_end|>"], 3: ["3<|im_end|>"]}),
])  # fmt: skip
def test_turns_are_told_apart_if_a_template_writes_the_last_one_differently(
    warm: Warm, name: str, messages: list[dict[str, Any]], answers: dict[int, list[str]]
) -> None:
    """Qwen3's template writes an empty block of reasoning only into the last answer, and leaves out the reasoning of
    earlier answers. So the conversation rendered up to an answer is no prefix of the complete rendered conversation.
    """
    row = {"tools": [TOOL], "messages": messages} if name == "calling" else {"messages": messages}
    more = ("chat_template = qwen3", "method sft(assistant_only)", "data(omit=[reasoning])")
    (one,) = (shown := first(warm, name, row, DEFAULT, *more, seq=800))["sequences"]
    texts = {turn: "".join(text for _, text, _, of in one["tokens"] if of == turn) for turn in range(len(messages))}
    for turn, message in enumerate(messages):
        assert bool(one["turns"][turn]["learned"]) is (message["role"] == "assistant"), one["turns"]
        assert str(message["content"] or "")[-1:] in texts[turn], (one["turns"], texts)
        assert all(part in texts[turn] for part in answers.get(turn, ())), texts
    assert "XP597" not in [one["code"] for one in shown["verdicts"]]
    lost = [one for one in shown["verdicts"] if one["code"] == "XP598"]
    assert [(one["severity"], one["help"]) for one in lost] == ([("note", "")] if name == "thinking" else [])


@pytest.mark.parametrize("template", ["qwen2.5", "llama3.1", "vicuna", "chatml"])
def test_what_a_template_writes_before_the_first_turn_belongs_to_no_turn(warm: Warm, template: str) -> None:
    """Qwen2.5, Llama 3.1 and Vicuna begin conversations with a system prompt of their own. ChatML does not."""
    row = {"messages": [ASK, GOOD]}
    (one,) = first(warm, f"opening-{template}", row, DEFAULT, f"chat_template = {template}", seq=400)["sequences"]
    before = "".join(text for _, text, _, turn in one["tokens"] if turn < 0)
    question = "".join(text for _, text, _, turn in one["tokens"] if turn == 0)
    own = {"qwen2.5": "created by Alibaba Cloud", "llama3.1": "Cutting Knowledge Date", "vicuna": "A chat between"}
    assert own.get(template, "") in before
    assert bool(before.strip()) is (template in own)
    assert question.startswith(
        {"vicuna": "USER: ", "llama3.1": "<|start_header_id|>user"}.get(template, "<|im_start|>user")
    )
    assert one["turns"][0]["tokens"] == sum(turn == 0 for *_, turn in one["tokens"])


@pytest.mark.parametrize("template", ["llama3.1", "qwen3"])
def test_descriptions_of_tools_belong_to_no_turn(warm: Warm, template: str) -> None:
    """Llama 3.1's template writes the tools' descriptions into the user's turn, between its header and its content."""
    row = {"tools": [TOOL], "messages": [ASK, GOOD]}
    (one,) = first(warm, f"tools-{template}", row, DEFAULT, f"chat_template = {template}", seq=900)["sequences"]
    texts = ["".join(text for _, text, _, turn in one["tokens"] if turn == at) for at in (-1, 0)]
    assert '"function"' in texts[0]
    assert "1+1?" not in texts[0]
    assert texts[1].endswith(("1+1?<|eot_id|>", "1+1?<|im_end|>\n"))
    assert "function" not in texts[1]


@pytest.mark.parametrize(("question", "codes"), [("1+1?", ["XP594"]), ("1+1? /no_think", [])])
def test_an_empty_block_of_reasoning_is_reported_unless_the_question_asks_for_it(
    warm: Warm, question: str, codes: list[str]
) -> None:
    row = {"messages": [{"role": "user", "content": question}, GOOD]}
    shown = first(warm, f"empty{len(codes)}", row, DEFAULT, "chat_template = qwen3", "method sft(assistant_only)")
    assert "<think>" in learned(shown["sequences"][0])
    assert [one["code"] for one in shown["verdicts"]] == codes


def test_a_weight_is_reported(warm: Warm) -> None:
    row = first(warm, "weight", {"messages": [ASK, {**GOOD, "weight": 0.5}]}, DEFAULT, "chat_template = qwen3")
    assert "XP549" in [one["code"] for one in row["verdicts"]]


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_calls_in_rows_of_the_hub_stop_the_run_until_the_spec_reads_them(warm: Warm, target: str) -> None:
    """The rows have tool calls, but the spec reads only the role and the text of a message. The run stops before its
    first step, and says what to write into the spec.
    """
    output = {}
    for name, columns in (("unread", ""), ("read", ", columns=[conversations, tools]")):
        text = spec(f"data(format=conversations{columns})", "chat_template = qwen2.5", data="some/rows",
                    length="1 steps", target=target, sizes="gbs=8 micro=4 seq=256")  # fmt: skip
        bundle, cwd = (
            warm.compiled(text, f"hub-{target}-{name}"),
            os.path.join(warm.location, f"hub-{target}-{name}.run"),
        )
        os.mkdir(cwd)
        output[name] = warm.of(target).run(bundle, cwd, bundle, program=os.path.join(HERE, "run_of_hub.py"))
    assert output["unread"]["status"] == [1]
    assert (
        "row 20: 'function_call' is no known speaker: write `columns = [conversations, tools]`"
        in output["unread"]["err"]
    )
    assert "step 1/1" not in output["unread"]["out"]
    assert output["read"]["status"] == [0], output["read"]["err"][-2000:]
    assert "checked 32 of 32 rows for parts that the chat template drops" in output["read"]["out"]


def stored(warm: Warm, name: str, rows: list[dict[str, Any]], target: str, *more: str, words: tuple[str, ...]) -> Any:
    """Write the rows into a Parquet file, which `xpc check` does not read, and preview them; return the worker's
    answer.
    """
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), os.path.join(warm.location, f"{name}.parquet"))
    text = spec(*more, data=f'"{name}.parquet"', length="1 steps", target=target, sizes="gbs=4 micro=2 seq=256")
    bundle, out = warm.compiled(text, name), os.path.join(warm.location, f"{name}.answer.json")
    done = warm.of(target).run(bundle, bundle, bundle, out, "1", *words, program=os.path.join(HERE, "prepared.py"))
    assert done["status"] == [0], f"{done['out'][-2000:]}\n{done['err'][-4000:]}"
    with open(out, encoding="utf-8") as handle:
        return json.load(handle)


def test_columns_and_dropped_rows_of_a_parquet_file_are_reported(warm: Warm) -> None:
    long = [{"role": "user", "content": "1+1? " * 9}, GOOD]
    rows = [{"messages": [ASK, GOOD], "documents": ["One and one is two."]}] * 4 + [
        {"messages": long, "documents": []}
    ] * 2
    found = stored(warm, "documents", rows, DEFAULT, "data(max_tokens=40)", words=())
    assert [(one["code"], one["message"]) for one in found["rows"][0]["verdicts"]] == [
        ("XP549", "the row has texts in a column `documents`, which sft does not read")
    ]
    assert found["messages"] == ["2 of 6 rows are left out: they have more than 40 tokens"]
    assert found["counts"]["rows"] == 4


@pytest.mark.parametrize("target", [one for one in STACKS if load(one).facts.prompts_begin_rows])
@pytest.mark.parametrize("method", ["dpo", "kto", "sft"])
def test_an_answer_that_begins_with_another_turn_stops_the_run(warm: Warm, method: str, target: str) -> None:
    turns = [{"role": "tool", "content": "2"}, GOOD]
    row = {"prompt": [ASK], "completion": turns, "label": True}
    if method == "dpo":
        row = {"prompt": [ASK], "chosen": turns, "rejected": [BAD]}
    template = "model(chat_template=chatml)"
    found = stored(warm, f"tool-{method}", [row] * 4, target, f"method {method}", template, words=("rows",))
    (one,) = found["rows"][0]["verdicts"]
    assert (one["code"], found["rows"][0]["sequences"]) == ("XP554", [])
    assert "begins with a turn of the role 'tool', which the chat template does not write right after the" in str(one)
