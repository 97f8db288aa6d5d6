"""`launch.sh --prepare` computes the same rows as `Dataset.map`, for every method, template and stack."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from emitted import put
from interpreters import methods_of
from method_runs import Small, Warm
from stacks import REPOSITORY
from tiers import EACH_STACK
from tiny import conversations
from tiny_runs import lines, spec

from xpc.compiler import stacks
from xpc.compiler.registry.chat_templates import FOLDER
from xpc.compiler.stacks import DEFAULT, STACKS

pytestmark = pytest.mark.slow

PROGRAM = os.path.join(REPOSITORY, "tests", "support", "mapped_rows.py")
TEMPLATES = sorted(name.removesuffix(".jinja") for name in os.listdir(FOLDER))
ODD = ("", " ", "\n\n", "  two  spaces ", "<|im_end|>", "naïve 日本語 🙂", "{{ 1 }}", "a" * 300, "\u0301e\u200d")
MASKED = tuple(target for target in STACKS if stacks.load(target).facts.assistant_only_loss)
METHODS_OF = {target: ["sft", *["sft(assistant_only)"] * (target in MASKED)] for target in STACKS}
ROWS = 450
"""This number of rows is larger than two groups. A group consists of the rows whose texts are encoded together."""


def turns(number: int) -> list[dict[str, str]]:
    """A conversation with one to three questions. One of its texts has an unusual ending."""
    made = [message for row in conversations(number % 3 + 1) for message in row]
    made[number % len(made)]["content"] += ODD[number % len(ODD)]
    return made


def weighted(number: int) -> list[dict[str, Any]]:
    """A conversation whose turns have weights. In two of three conversations, the weight of the first answer excludes
    it from the loss.
    """
    answers = turns(number)
    return [{**turn, "weight": int(at != 1 or len(answers) < 4)} for at, turn in enumerate(answers)]


FILES = {
    "mapped.jsonl": lines([{"messages": turns(number)} for number in range(ROWS)]),
    "mapped-pairs.jsonl": lines(
        [{"prompt": turns(number)[:-1], "completion": turns(number)[-1:]} for number in range(ROWS)]
    ),
    "mapped-weights.jsonl": lines([{"messages": weighted(number)} for number in range(ROWS)]),
    "mapped-text.jsonl": lines([{"text": "".join(turn["content"] for turn in turns(n))} for n in range(ROWS)]),
}


def calls(warm: Warm, target: str, name: str, texts: dict[str, str]) -> list[dict[str, Any]]:
    """Prepare the rows of these specs. Return a report for each call that the trainer makes of `Dataset.map`."""
    put(warm.location, FILES)
    bundles = [warm.compiled(text, f"mapped-{target}-{name}-{part}") for part, text in texts.items()]
    answer = warm.of(target).run(bundles[0], warm.location, *bundles, program=PROGRAM)
    assert answer["status"] == [0], answer["err"][-3000:]
    found = [json.loads(line[5:]) for line in answer["out"].splitlines() if line.startswith("CALL ")]
    assert {one["bundle"] for one in found} == {os.path.basename(one) for one in bundles}
    return found


def check(found: list[dict[str, Any]]) -> None:
    """Check that every call was made in batches, and that it gave the same result as `Dataset.map`."""
    for call in found:
        assert call["batched"], call
        assert call["types"], call
        assert call["values"], call


@pytest.mark.parametrize("target", EACH_STACK)
def test_rows_of_every_method_are_the_same(warm: Warm, target: str) -> None:
    check(calls(warm, target, "methods", {method: Small(method, target).text for method in methods_of(target)}))


@pytest.mark.parametrize("target", EACH_STACK)
def test_rows_of_every_template_are_the_same(warm: Warm, target: str) -> None:
    """To save time, only the last method of the list prepares rows with every template; the other methods use a quarter
    of the templates. On a stack that can mask by turns, the last method is `sft` with masks, and its rows contain
    everything that rows without masks have.
    """
    for method in METHODS_OF[target]:
        texts = {
            name: spec(
                f"method {method}", f"model(chat_template={name})", data='"mapped.jsonl"', target=target,
                sizes=f"gbs=8 micro=2 seq={1400 if name == 'smollm3' else 320}",
            )
            for name in (TEMPLATES if method == METHODS_OF[target][-1] else TEMPLATES[::4])
        }  # fmt: skip
        found = calls(warm, target, method.replace("(", "-").rstrip(")"), texts)
        assert {one["rows"] for one in found} == {ROWS}
        check(found)


@pytest.mark.parametrize("target", EACH_STACK)
def test_rows_of_every_shape_are_the_same(warm: Warm, target: str) -> None:
    """The cases are prompts with completions, plain texts, packed rows, rows with weights, and a loss by two masks."""
    sizes = "gbs=8 micro=2 seq=48"
    texts = {
        "completion": spec("method sft(completion_only)", data='"mapped-pairs.jsonl"', target=target, sizes=sizes),
        "text": spec(data='"mapped-text.jsonl"', target=target, sizes=sizes),
    }
    if target in MASKED:
        texts["packed"] = spec(data='"mapped.jsonl"', target=target, sizes=sizes, batch=" packing(isolate=mask)")
        method = "method sft(completion_only, assistant_only)"
        texts["weights"] = spec("method sft(assistant_only)", data='"mapped-weights.jsonl"', target=target, sizes=sizes)
        texts["both"] = spec(method, data='"mapped-pairs.jsonl"', target=target, sizes=sizes)
    found = calls(warm, target, "shapes", texts)
    check(found)
    on_columns = {one["function"].rpartition(".")[2] for one in found if one["columns"]}
    assert on_columns == ({"build_labels", "truncate", "<lambda>"} if target == DEFAULT else set())
    if target == DEFAULT:  # the trainer's filter drops a row if its answers begin after the first `seq` tokens
        assert any(0 < one["kept"] < ROWS for one in found if one["function"].endswith("<lambda>"))
