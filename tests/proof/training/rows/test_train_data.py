"""Real runs report how many rows and tokens were truncated, and record both numbers in their summary. A run in which no
token has a loss ends with a message of one line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from emitted import put
from method_runs import Warm
from tiers import FIRST_AND_LAST
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, load

pytestmark = pytest.mark.slow

TARGETS = FIRST_AND_LAST
TEXTS_ONLY = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% endif %}<|im_end|>{% endfor %}"
)
"""A template that writes a content only if the content is a text. It omits a content that is a list of parts."""
NO_SYSTEM = (
    "{% for message in messages %}{% if message['role'] != 'system' %}<|im_start|>{{ message['role'] }}: "
    "{{ message['content'] }}<|im_end|>{% endif %}{% endfor %}"
)
"""A template that omits turns of the role system."""


def turns(question: str, answer: str, parts: bool = False) -> dict[str, object]:
    """A row with `messages`. If `parts` is true, the content of each message is a list of parts, and otherwise a
    text.
    """
    printed = {"user": question, "assistant": answer}
    return {
        "messages": [
            {"role": role, "content": [{"type": "text", "text": text}] if parts else text}
            for role, text in printed.items()
        ]
    }


def ended(warm: Warm, text: str, name: str, cwd: str, *words: str) -> tuple[int, str]:
    """Run `launch.sh`; return its exit status, and everything that it prints."""
    run = warm.launch(warm.compiled(text, name), cwd, *words)
    return run.done.returncode, run.done.stdout + run.done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_truncated_rows_are_reported_and_kept(warm: Warm, tmp_path: Path, target: str) -> None:
    text = spec(length="1 step", target=target, sizes="gbs=8 micro=4 seq=16")
    run = warm.train(text, f"cut-{target}", target, str(tmp_path))
    found = run.summary["data"]
    assert (found["rows"], found["tokens"]) == (64, 64 * 28)  # every row has 28 tokens
    assert (found["cut_rows"], found["cut_tokens"]) == (64, 64 * 12)
    assert (
        "64 of 64 rows have more than seq = 16 tokens (the longest 28): 768 of 1,792 tokens are cut off" in run.output
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_run_with_no_answer_within_seq_ends_with_one_line(warm: Warm, tmp_path: Path, target: str) -> None:
    masks = load(target).facts.assistant_only_loss
    long = "What-colour-is-it?" * 12  # a single word, so that XP603, which counts words, does not refuse it
    put(warm.location, {
        "long.jsonl": lines([turns(long, f"It is {i}.") for i in range(8)]),
        "long-pairs.jsonl": lines([{"prompt": long, "completion": f"It is {i}."} for i in range(8)]),
    })  # fmt: skip
    data = '"long.jsonl"' if masks else '"long-pairs.jsonl"'  # trl-0.18 has no `assistant_only`
    text = spec(
        "method sft(assistant_only)" if masks else "method sft",
        data=data,
        length="1 step",
        target=target,
        sizes="gbs=8 micro=4 seq=16",
    )
    status, printed = ended(warm, text, f"long-{target}", str(tmp_path))
    assert status != 0
    assert (
        printed.count("nothing is left to train on: none of 8 rows has anything to learn within seq = 16 tokens") == 1
    )
    assert "Traceback" not in printed
    assert not os.path.exists(tmp_path / "out" / "model.safetensors")


def test_texts_become_turns_of_a_capped_source_without_its_long_rows(warm: Warm, tmp_path: Path) -> None:
    answers = ["It is red."] * 3 + ["It is red. " * 30] + ["It is red."] * 12
    rows = [{"prompt": f"What colour is number {i}?", "completion": answer} for i, answer in enumerate(answers)]
    put(warm.location, {"capped.jsonl": lines(rows)})
    source = '"capped.jsonl" {\n    limit = 9\n  }'
    data = f"data rows {{\n  {source}\n  format = prompt_completion\n  chat\n  max_tokens = 48\n}}"
    text = spec(data, data="rows", length="1 step", sizes="gbs=8 micro=4 seq=64")
    run = warm.train(text, "capped", DEFAULT, str(tmp_path))
    assert run.summary["data"]["rows"] == 8  # nine rows are read, and one is too long
    assert run.summary["data"]["cut_rows"] == 0
    assert "1 of 9 rows are left out: they have more than 48 tokens" in run.output


def test_parts_reach_a_template_that_reads_texts(warm: Warm, tmp_path: Path) -> None:
    rows = [turns("What colour is it?", "It is red.", parts=True) for _ in range(8)]
    put(warm.location, {"parts.jsonl": lines(rows), "texts-only.jinja": TEXTS_ONLY})
    text = spec('model(chat_template=file("texts-only.jinja"))', data='"parts.jsonl"', length="1 step")
    status, printed = ended(warm, text, "parts", str(tmp_path))
    assert status == 0, printed
    assert "first rows have" in printed
    assert "Traceback" not in printed


def test_a_turn_of_an_evaluation_set_that_the_template_leaves_out_ends_the_run(warm: Warm, tmp_path: Path) -> None:
    rows: list[Any] = [turns("What colour is it?", "It is red.") for _ in range(8)]
    # the preflight does not read as far as this row, so only the run finds the turn
    rows[6]["messages"].insert(0, {"role": "system", "content": "Answer in one word."})
    put(warm.location, {"odd.jsonl": lines(rows), "no-system.jinja": NO_SYSTEM})
    text = spec('model(chat_template=file("no-system.jinja"))', 'eval(data="odd.jsonl")', length="1 step")
    status, printed = ended(warm, text, "odd", str(tmp_path))
    assert status != 0
    assert "odd.jsonl, row 6: the chat template leaves out or changes the content 'Answer in one word.'" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("chat", [False, True])
def test_a_run_names_the_form_that_its_pairs_were_learned_in(warm: Warm, tmp_path: Path, chat: bool) -> None:
    rows = [{"prompt": "What colour is it?", "chosen": "It is red.", "rejected": f"It is {i}."} for i in range(8)]
    put(warm.location, {"texts.jsonl": lines(rows)})
    form = "true" if chat else "false"
    text = spec("method dpo", f"data(chat={form})", data='"texts.jsonl"', length="1 step")
    run = warm.train(text, f"texts-{form}", DEFAULT, str(tmp_path))
    assert ("; plain text, which the chat template does not wrap" in run.output) != chat
    question = '[{"role": "user", "content": "Hello"}]' if chat else '"Hello"'
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert all(f"ask({question}, max_new_tokens=64)" in one for one in (run.output, card))
