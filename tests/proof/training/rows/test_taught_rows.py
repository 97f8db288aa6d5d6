"""Everything in a row reaches the trainer's batches: tools, tool calls, content in several parts, and reasoning. This
is tested for every method and stack.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from emitted import put
from method_runs import Warm
from stacks import REPOSITORY
from tiers import FIRST_AND_LAST, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.registry import chat_templates
from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

PROGRAM = os.path.join(REPOSITORY, "tests", "support", "batches.py")
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": {}}}]


def turn(role: str, content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **keys}


def calls(arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        turn("assistant", None, tool_calls=[call]),
        turn("tool", "sun", tool_call_id="abcdefghi"),
        turn("assistant", "Sunny.", reasoning_content="it shines"),
    ]


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


QUESTION, NO = [turn("user", "And now?")], [turn("assistant", "No.")]
OBJECT, TEXT = {"city": "Paris", "unit": None}, '{"city": "Paris", "unit": null}'
WRITTEN = '{"name": "weather", "arguments": {"city": "Paris", "unit": null}}'
FILES = {
    "taught-calls.jsonl": lines(
        [{"messages": QUESTION + calls(one), "tools": TOOLS} for one in (OBJECT, TEXT, {}, "{}")]
    ),
    "taught-plain.jsonl": lines([{"messages": QUESTION + NO}] * 4),
    "taught-parts.jsonl": lines(
        [{"messages": [turn("user", parts("And now?")), turn("assistant", parts("N", "o."))]}] * 4
    ),
    "taught-pairs.jsonl": lines([{"prompt": QUESTION, "chosen": calls(OBJECT), "rejected": NO, "tools": TOOLS}] * 4),
    "taught-judged.jsonl": lines(
        [{"prompt": QUESTION, "completion": calls(TEXT), "label": i > 1, "tools": json.dumps(TOOLS)} for i in range(4)]
    ),
    "taught-sharegpt.jsonl": lines(
        [
            {
                "conversations": [{"from": "human", "value": "And now?"}, {"from": "gpt", "value": "No."}],
                "system": "Be short.",
                "tools": json.dumps(TOOLS),
            }
        ]
        * 4
    ),
}
LEARNED, NOT = [turn("user", "And now?"), turn("assistant", "Yes.")], [turn("user", "So?"), turn("assistant", "Never.")]
FILES["taught-weights.jsonl"] = lines(
    [{"messages": [*LEARNED, NOT[0], {**NOT[1], **keys}, *LEARNED]}
     for keys in ({"weight": 0}, {"train": False}, {"train_turn": False}, {"loss": False})]
)  # fmt: skip
FILES["taught.jinja"] = chat_templates.text("chatml").decode()  # `xpc check` cannot know what this template writes
FILES["taught-thinking.jsonl"] = lines(
    [{"prompt": QUESTION, "completion": NO, "chat_template_kwargs": {"enable_thinking": True} if i < 2 else None}
     for i in range(4)]
)  # fmt: skip
QWEN3 = "model(chat_template=qwen3)"


def data(*names: str, more: str = "") -> str:
    return "data mix {\n" + "".join(f'  "taught-{name}.jsonl"\n' for name in names) + f"{more}}}"


def trained_rows(warm: Warm, target: str, name: str, *texts: str) -> list[dict[str, Any]]:
    """Compile these specs; return the batches on which each bundle trains, one entry per spec."""
    put(warm.location, FILES)
    bundles = [warm.compiled(text, f"taught-{target}-{name}-{number}") for number, text in enumerate(texts)]
    answer = warm.of(target).run(bundles[0], warm.location, *bundles, program=PROGRAM)
    assert answer["status"] == [0], answer["err"][-3000:]
    return [json.loads(line[8:]) for line in answer["out"].splitlines() if line.startswith("BATCHES ")]


def small(target: str, *more: str) -> str:
    return spec(*more, data="mix", length="1 step", target=target, sizes="gbs=4 micro=2 seq=1024")


def texts(found: dict[str, Any]) -> list[str]:
    """The texts of the rows, each text once. The text of a preference pair is the prompt with the better answer."""
    assert "rows" in found, found
    out = []
    for row in found["rows"]:
        one = {name: values[0] for name, values in row.items() if name != "learned" and "rejected" not in name}
        out.append("".join(one[name] for name in sorted(one, reverse=True)))
    return list(dict.fromkeys(out))


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_calls_and_reasoning_are_in_the_batches_of_every_method(warm: Warm, tmp_path: Path, target: str) -> None:
    rows = {"sft": "calls", "dpo": "pairs", "orpo": "pairs", "reward": "pairs", "kto": "judged"}
    cut = ("dpo", "orpo", "kto") if target != DEFAULT else ()  # by default prompts are limited to 512 tokens
    found = trained_rows(
        warm, target, "methods",
        *(
            small(target, data(name), f"method {method}" + "(max_prompt=900)" * (method in cut), QWEN3)
            for method, name in rows.items()
        ),
    )  # fmt: skip
    for batches in found:
        written = texts(batches)
        assert sum(WRITTEN in one for one in written) == 1, written
        for one in written:
            assert '"description": "Says it."' in one
            assert "<think>\nit shines\n</think>\n\nSunny." in one


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_mixture_keeps_everything_in_its_rows(warm: Warm, tmp_path: Path, target: str) -> None:
    mixture, alone, parts, sharegpt, lost, allowed = trained_rows(
        warm, target, "mixture",
        small(target, data("calls", "plain", "parts", "sharegpt"), QWEN3),
        small(target, data("plain"), QWEN3),
        small(target, data("parts"), QWEN3),
        small(target, data("sharegpt"), QWEN3),
        small(target, data("plain", "calls"), 'model(chat_template=file("taught.jinja"))'),
        small(target, data("calls", more="omit = [tools, tool_calls, reasoning]\n"), "model(chat_template=chatml)"),
    )  # fmt: skip
    assert len(mixture["rows"]) == 16
    assert texts(alone) == texts(parts)
    assert set(texts(alone) + texts(sharegpt)) < set(texts(mixture))
    assert "<|im_start|>system\nBe short." in texts(sharegpt)[0]
    assert "weather" in texts(sharegpt)[0]
    assert "row 0: the chat template leaves out the tool call 'weather' of turn 1 (assistant)" in lost["error"]
    assert "data(omit=[tool_calls, reasoning, tools])" in lost["error"]
    assert "weather" not in texts(allowed)[0]


@pytest.mark.parametrize(
    "target", nightly_but([one for one in STACKS if load(one).facts.assistant_only_loss], DEFAULT.__eq__)
)
def test_a_turn_of_weight_0_bears_no_loss(warm: Warm, tmp_path: Path, target: str) -> None:
    names, masked = ("chatml", "qwen3", "gemma3", "phi3", "zephyr"), "method sft(assistant_only)"
    specs = (small(target, data("weights"), masked, f"model(chat_template={name})") for name in names)
    found = trained_rows(warm, target, "weights", *specs)
    for name, one in zip(names, found, strict=True):
        assert "rows" in one, (name, one)
        for row in one["rows"]:
            assert "Never." in row["input_ids"][0]
            assert "Never." not in row["learned"][0]
            assert row["learned"][0].count("Yes.") == 2


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_row_thinks_where_the_spec_does_not(warm: Warm, tmp_path: Path, target: str) -> None:
    without = "model(chat_template=qwen3(enable_thinking=false))"
    masked, plain = trained_rows(
        warm, target, "thinking",
        small(target, data("thinking"), "method sft(completion_only)", without),
        small(target, data("plain"), QWEN3),
    )  # fmt: skip
    learned = [row["learned"][0] for row in masked["rows"]]
    # Two of the four rows switch thinking on. In the other two, an empty reasoning block belongs to the prompt, so it
    # has no loss.
    assert sum("<think>" in one for one in learned) == 2, learned
    assert all("<think>" in row["input_ids"][0] for row in (*masked["rows"], *plain["rows"]))


def test_the_run_says_how_many_rows_it_compared(warm: Warm, tmp_path: Path) -> None:
    put(warm.location, FILES)
    bundle = warm.compiled(small("trl-1.16", data("plain"), QWEN3), "taught-compared")
    answer = warm.of("trl-1.16").run(bundle, warm.location, bundle, program=PROGRAM)
    assert "taught-plain.jsonl: checked 4 of 4 rows for parts that the chat template drops" in answer["out"]
