"""Runs with each kind of optimizer: a run that resumes from its checkpoint ends with the weights of an uninterrupted
run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from method_runs import STEPS, Warm, tensors
from tiny_runs import spec

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

PROJECTED = "(targets=all-linear, rank=8)"
RUNS = {
    "galore": f"galore_adamw{PROJECTED}",
    **{name: name for name in ("adafactor", "adamw8bit", "ademamix", "lion", "paged_adamw", "rmsprop", "stable_adamw")},
    "apollo": f"apollo_adamw{PROJECTED}",
    "factored": f"galore_adafactor{PROJECTED}",
    "layerwise": f"galore_adamw_layerwise{PROJECTED}",
    "momentum": "sgd(momentum=0.9)",
    "schedule-free": "schedule_free_adamw",
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one == "galore" else pytest.mark.nightly) for one in RUNS]
)
def test_it_goes_on_with_its_states(warm: Warm, tmp_path: Path, name: str) -> None:
    text = spec(length=f"{STEPS} steps", save='save "out" every=2', sizes="gbs=8 micro=8 seq=64")
    text = text.replace("optimizer adamw(lr=1e-3)", f"optimizer {RUNS[name]}")
    whole, again = warm.twice(text, f"optimizer-{name}", DEFAULT, str(tmp_path))
    assert again.summary["resumed_from"] == "checkpoint-2"
    one, other = (tensors(os.path.join(run.out, "model.safetensors")) for run in (whole, again))
    assert (one == other) == (name != "layerwise")  # a launch setting (XP914)


def test_a_schedule_free_run_saves_the_averaged_weights(warm: Warm, tmp_path: Path) -> None:
    """The optimizer computes gradients at a point between its average and its iterate. The saved weights must be the
    average.
    """
    text = spec(length=f"{STEPS} steps", save='save "out" every=2', sizes="gbs=8 micro=8 seq=64")
    text = text.replace("optimizer adamw(lr=1e-3)", "optimizer schedule_free_adamw(lr=1e-2)")
    run = warm.train(text, "averaged", DEFAULT, str(tmp_path))
    saved = os.path.join(run.out, f"checkpoint-{STEPS}")
    states = warm.program(
        DEFAULT,
        "import json, sys, torch\n"
        "groups = torch.load(sys.argv[1], weights_only=False)['param_groups']\n"
        "print(json.dumps({'trains': [group['train_mode'] for group in groups]}))\n",
        os.path.join(saved, "optimizer.pt"),
    )
    assert not any(states[0]["trains"])
    assert tensors(os.path.join(run.out, "model.safetensors")) == tensors(os.path.join(saved, "model.safetensors"))
