"""`eval { patience }` in real runs: a run ends early if its evaluations stop improving. If the same command is started
again, the run trains no further step.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from method_runs import Warm, small
from tiers import FIRST_AND_LAST

pytestmark = pytest.mark.slow

UNMOVED = "adamw(lr=1e-30)"
"""With this learning rate no weight changes, so every evaluation has the result of the first."""


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_run_ends_where_evaluations_are_no_better(warm: Warm, tmp_path: Path, target: str) -> None:
    patient = 'eval(every=1, patience=2, data="messages.jsonl")'
    text = small(patient, method="sft", target=target, save='save "out" every=1').replace("adamw(lr=1e-3)", UNMOVED)
    run = warm.train(text, f"patience-{target}", target, str(tmp_path))
    assert run.summary["steps"] == 3, "the first evaluation and two that are no better"
    assert [event["step"] for event in run.events if "eval_loss" in event] == [1, 2, 3]
    assert "step 3 is the last" in run.output
    with open(os.path.join(run.out, "checkpoint-3", "trainer_state.json"), encoding="utf-8") as handle:
        assert json.load(handle)["global_step"] == 3
    # the summary is deleted, so that the run seems to have been killed after its last checkpoint
    os.remove(os.path.join(run.out, "summary.json"))
    again = warm.run(run.folder, str(tmp_path), target, 1, XPC_PREFLIGHT="passed")
    assert again.summary["steps"] == 3
    assert [event["step"] for event in again.events if "eval_loss" in event] == [1, 2, 3]


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_best_evaluation_is_reported_where_its_weights_are_saved(warm: Warm, tmp_path: Path, target: str) -> None:
    patient = 'eval(every=1, patience=2, data="messages.jsonl")'
    best = "extra trl {\n  load_best_model_at_end = true\n}"
    text = small(patient, best, method="sft", target=target, save='save "out" every=1')
    run = warm.train(text.replace("adamw(lr=1e-3)", UNMOVED), f"best-{target}", target, str(tmp_path))
    reported = run.summary["evaluation"]
    assert (reported["step"], reported["best_step"], reported["best"]) == (3, 1, reported["eval_loss"])
    assert "at step 1: its weights are saved" in run.output
