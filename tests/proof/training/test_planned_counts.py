"""A real run has as many steps, evaluations and checkpoints as the plan states."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from method_runs import Warm
from tiny_runs import spec

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan.experiment import plan

pytestmark = pytest.mark.slow
ONLINE = {"data": '"prompts.jsonl"', "sizes": "gbs=8 micro=4"}
GRPO = 'method grpo(rewards="rewards.py:even", generations=4, max_completion=12, beta=0.04{})'
RUNS = {
    "last-evaluation": spec("data(holdout=10)", "eval(every=4, micro=4)", length="2 epochs"),
    "checkpoints": spec("data(holdout=10%)", "eval(every=20%)", length="1.5 epochs", save='save "out" every=25%'),
    "distillation": spec('method distill(teacher="teacher", max_completion=12)', length="1 epochs",
                         **{**ONLINE, "sizes": "gbs=24 micro=4"}),
    "iterations": spec(GRPO.format(", iterations=2"), "data(holdout=9)", "eval(every=7)", length="1 epochs", **ONLINE),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_planned_counts(warm: Warm, tmp_path: Path, name: str) -> None:
    text = RUNS[name]
    found = check_text(text.encode(), "run.xp", Workspace(warm.location)).spec
    assert found is not None
    planned = plan(found)
    run = warm.launch(warm.compiled(text, f"counts-{name}"), str(tmp_path))
    assert run.done.returncode == 0, run.output
    evaluated = [event for event in run.metrics if any(key.startswith("eval_") for key in event)]
    saved = [one for one in os.listdir(run.out) if one.startswith("checkpoint-")]
    assert planned.steps == run.summary["steps"]
    assert (planned.evaluations, planned.saves) == (len(evaluated), len(saved))
