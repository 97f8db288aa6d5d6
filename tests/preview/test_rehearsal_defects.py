"""For each kind of mistake in a spec or its data, a rehearsal reports one sentence. `xpc check` already reports most of
them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from emitted import put

from xpc.compiler.files.inputs import SpecError
from xpc.compiler.preview.rehearsal import show, small_run
from xpc.compiler.stacks import DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

    from method_runs import Warm

TURN = "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
REFUSAL = "{% if 'number' in message['content'] %}{{ raise_exception('no numbers') }}{% endif %}"
REWARDS = """\
calls = 0


def third(completions, prompts, **kwargs):
    if any("number 2" in str(one) for one in prompts):
        raise ValueError("no score for this row")
    return [float(len(str(one))) for one in completions]


def counting(completions, **kwargs):
    global calls
    calls += 1
    return [float(calls * number) for number, _ in enumerate(completions)]


def short(completions, **kwargs):
    return [1.0]


def words(completions, **kwargs):
    return ["good" for _ in completions]


def column(completions, solution, **kwargs):
    return [float(len(one)) for one in solution]
"""


def rows(make: Any) -> str:
    return "".join(json.dumps(make(number)) + "\n" for number in range(64))


def chat(question: str, *answers: str) -> dict[str, Any]:
    turns = [{"role": "user", "content": question}, *({"role": "assistant", "content": one} for one in answers)]
    return {"messages": turns}


FILES = {
    "chats.jsonl": rows(lambda number: chat(f"Say number {number}", f"It is {number}.")),
    "silent.jsonl": rows(lambda number: chat(f"Say {number}")),
    "long.jsonl": rows(lambda number: chat("word " * 300, "Yes.")),
    "broken.jsonl": rows(lambda number: chat(f"Say {number}", "Yes.")).replace("Say 5", 'Say "5"', 1),
    "roles.jsonl": rows(lambda number: chat(f"Say {number}", *["Yes."] * (number != 3))),
    "prompts.jsonl": rows(lambda number: {"prompt": f"What is number {number}?"}),
    "pairs.jsonl": rows(lambda number: {"prompt": "What?", "chosen": f"It is {number}.", "rejected": "Well."}),
    "same.jsonl": rows(lambda number: {"prompt": f"What is {number}?", "chosen": "Four.", "rejected": "Four."}),
    "plain.jinja": "{% for message in messages %}" + TURN + "{% endfor %}" + ASK,
    "endless.jinja": "{% for message in messages %}" + TURN.replace("<|im_end|>", "") + "{% endfor %}" + ASK,
    "strict.jinja": "{% for message in messages %}" + REFUSAL + TURN + "{% endfor %}" + ASK,
    "score.py": REWARDS,
    "imports.py": "import no_such_package\n\n\ndef score(completions, **kwargs):\n    return [0.0]\n",
    "file": "",
}


def written(
    *more: str, data: str = "chats.jsonl", seq: str = " seq=64", save: str = '"out" every=10', model: str = "tiny"
) -> str:
    name = model if model != "tiny" else '"tiny"'
    head = ["xpc 1", f'train {name} on "{data}" for 40 steps', "hardware cpu", f"batch gbs=4 micro=2{seq}"]
    return "\n".join([*head, f"save {save}", *more]) + "\n"


def grpo(reward: str, **options: str) -> str:
    method = f'method grpo(generations=2, max_completion=8, rewards=["{reward}"])'
    return written(method, data="prompts.jsonl", seq="", **options)


KNOWN = "qwen2.5-1.5b"
CHECKED = {
    "a template without generation marks": (
        written('model(chat_template=file("plain.jinja"))', "method sft(assistant_only)", model=KNOWN), "XP506"),
    "a missing column": (written("data(columns=[chat])", model=KNOWN), "XP553"),
    "a mask that trains nothing": (written("method sft(assistant_only)", data="silent.jsonl", model=KNOWN), "XP602"),
    "a refused name": (written(save='"out" { every=10, hub="me/bad--name" }', model=KNOWN), "XP107"),
    "an adapter that matches nothing": (written("lora(targets=[no_such_proj])", model=KNOWN), "XP455"),
    "an evaluation of another shape": (written('eval(data="pairs.jsonl", every=10)', model=KNOWN), "XP503"),
    "a learning rate of 0": (written("optimizer adamw(lr=0)", model=KNOWN), "XP207"),
    "a broken row": (written(data="broken.jsonl", model=KNOWN), "XP530"),
    "a column that a reward needs": (grpo("score.py:column", model=KNOWN), "XP674"),
    "a best metric that is never logged": (
        written("extra trl(load_best_model_at_end=true, metric_for_best_model=eval_score)", "eval(every=10)",
                "data(holdout=10%)", model=KNOWN), "XP512"),
    "equal answers": (written("method dpo", data="same.jsonl", model=KNOWN), "XP536"),
}  # fmt: skip
"""Specs that `xpc check` refuses, each with the code of the error."""
PREPARED = {
    "a template that refuses rows": (
        written('model(chat_template=file("strict.jinja"))'), "no row is trained on: the chat template refuses"),
    "rows longer than seq": (written("method sft(assistant_only)", data="long.jsonl"), "no answer is within seq = 64"),
    "a filter that leaves no row": (written("data(min_tokens=5000)"), "every row has fewer than 5000 tokens"),
}  # fmt: skip
"""Specs whose rows cannot be prepared, each with a part of the message."""
LAUNCHED = {
    "a reward that raises on the third row": (grpo("score.py:third"), "no score for this row in line 6 of score.py"),
    "a package that a reward lacks": (grpo("imports.py:score"), "imports.py cannot be executed: ModuleNotFoundError"),
}
"""Specs whose first launch ends with an error, each with a part of the message."""
COMPLETE = {
    "a reward with too few values": (grpo("score.py:short"), "the reward short returned 1 value"),
    "a reward that returns texts": (grpo("score.py:words"), "the reward words returned a str"),
    "a row without an answer": (written(data="roles.jsonl"), "roles.jsonl: a conversation has no assistant turn"),
    "a schedule that never leaves its warm-up": (
        written("schedule cosine(warmup=100%)"), "the run ends within its warm-up"),
    "a template without an end": (
        written('model(chat_template=file("endless.jinja"))'), "the model does not learn to stop"),
    "a state that no checkpoint has": (
        grpo("score.py:counting"), "that was killed and resumed ends with other weights"),
}  # fmt: skip
"""Specs whose mistakes appear only in a second launch, or in code that a first launch does not run."""


@pytest.mark.parametrize("name", CHECKED)
def test_a_defect_of_the_spec_is_found_by_the_check(name: str, tmp_path: Path, capsys: Any) -> None:
    text, code = CHECKED[name]
    put(str(tmp_path), {**FILES, "run.xp": text})
    with pytest.raises(SpecError, match="does not compile, so there is nothing to rehearse"):
        small_run.checked_run(str(tmp_path / "run.xp"))
    found = capsys.readouterr().err
    assert found.startswith(f"{code} "), found
    assert found.rstrip().endswith("1 error"), found


def found_in(warm: Warm, text: str) -> tuple[list[str], int]:
    """Rehearse a spec in one of the warm interpreters. Return the findings and the exit status of the rehearsal."""
    put(warm.location, {**FILES, "run.xp": text})
    path = os.path.join(warm.location, "run.xp")
    report = small_run.rehearse(small_run.checked_run(path), path, warm.of(DEFAULT))
    return [one["message"] for one in report["findings"]], show.status(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", {**PREPARED, **LAUNCHED})
def test_a_defect_is_found_in_one_sentence(name: str, warm: Warm) -> None:
    text, sentence = {**PREPARED, **LAUNCHED}[name]
    found, status = found_in(warm, text)
    assert len(found) == 1, found
    assert sentence in found[0]
    assert "/" not in found[0].replace("'role'", "")
    assert status == 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMPLETE)
def test_a_late_defect_is_found_in_one_sentence(name: str, warm: Warm) -> None:
    text, sentence = COMPLETE[name]
    found, status = found_in(warm, text)
    assert len(found) == 1, found
    assert sentence in found[0]
    assert status == int(name != "a template without an end")  # a template without an end is only a warning
