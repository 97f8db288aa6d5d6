"""The compiler counts the rows of a run before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from case_support import spec, trained
from compile_support import checked, put, shown

from xpc.compiler.data.row_counts import mixture_rows, sampled
from xpc.compiler.tuning import command


@pytest.mark.parametrize("holdout", ["25%", "40"])
def test_a_mixture_holds_out_a_share_or_a_number_of_its_rows(tmp_path: Path, holdout: str) -> None:
    row = json.dumps({"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4"}]}) + "\n"
    root = put(tmp_path, {"a.jsonl": row * 80, "b.jsonl": row * 80})
    sources = [f'  "{name}.jsonl" {{\n    columns = [messages]\n    share = 50%\n  }}' for name in "ab"]
    text = spec("data mix {", *sources, f"  holdout = {holdout}", "}", train=trained("qwen2.5-3b on mix"))
    found = checked(text, root)
    assert found.spec is not None, shown(found)
    assert mixture_rows(found.spec) == ([60, 60], [20, 20])


@pytest.mark.parametrize(("target", "rows"), [("trl-1.16", 56), ("trl-0.24", 61)])
def test_distillation_may_drop_prompts_that_do_not_fill_a_step(target: str, rows: int) -> None:
    """61 prompts in steps of 8. A run on the CPU with trl-1.16 takes 7 steps."""
    more = ("method distill(teacher=qwen2.5-3b)", f"target {target}")
    found = checked(spec(*more, train="qwen2.5-0.5b on deepmath-103k", batch="gbs=8 micro=1"))
    assert found.spec is not None, shown(found)
    assert sampled(found.spec, 61) == rows


def test_steps_of_filtered_rows_are_at_most_the_planned_ones(tmp_path: Path) -> None:
    root = put(tmp_path, {"a.jsonl": '{"text": "a"}\n' * 640})
    path = Path(root) / "run.xp"
    for more, steps in (("", "steps: 10,"), ("data(unique, min_tokens=4)", "steps: at most 10,")):
        path.write_text(f'xpc 1\ntrain qwen2.5-0.5b on "a.jsonl" for 1 epochs\nbatch gbs=64\nsave "out"\n{more}\n')
        text, _ = command.run(command.parse([str(path)]))
        assert steps in text
        assert ("`unique` and `min_tokens` may drop rows" in text) == bool(more)
