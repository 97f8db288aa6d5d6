"""For each kind of optimizer, a run that is resumed from its checkpoint ends with the weights of an uninterrupted
run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from interpreters import OTHERS
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
    """A schedule-free optimizer computes gradients at a point between its iterate and the average of its iterates. The
    saved weights must be the average.
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


@pytest.mark.parametrize(
    ("target", "strategy"),
    [
        (DEFAULT, "ddp"),
        pytest.param(DEFAULT, "zero2", marks=pytest.mark.nightly),
        *(pytest.param(one, "ddp", marks=pytest.mark.nightly) for one in OTHERS),
    ],
)
def test_a_decay_as_a_share_is_steps_of_the_run(warm: Warm, tmp_path: Path, target: str, strategy: str) -> None:
    """Of the 4 steps of an epoch, `wsd` warms up for 1 and decays in the last 2, also after a resume."""
    world = 1 if strategy == "ddp" else 2
    sizes = f"gbs=16 micro={16 // world} seq=64"
    text = spec(
        length="1 epochs",
        save='save "out" every=2',
        sizes=sizes,
        strategy=strategy,
        target=target,
        hardware=f"{world} x cpu",
    )
    whole, again = warm.twice(
        f"{text}schedule wsd(warmup=25%, decay=50%, decay_type=linear)\n", "share", target, str(tmp_path), world
    )
    assert again.summary["resumed_from"] == "checkpoint-2"
    assert [lr / 1e-3 for lr in whole.values("lr")] == pytest.approx([0, 1, 1, 0.5], abs=1e-9)
    one, other = (tensors(os.path.join(run.out, "model.safetensors")) for run in (whole, again))
    assert one == other


SHARDED = """
import os, sys, torch
import torch.distributed as dist
from schedulefree import AdamWScheduleFree
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))

def points(module, whole):
    torch.manual_seed(1)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    optimizer = AdamWScheduleFree(module.parameters(), lr=1e-2, warmup_steps=2)
    for _ in range(6):
        optimizer.train()
        optimizer.zero_grad()
        ((module(x) - y) ** 2).mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    out = []
    for switch in (optimizer.eval, optimizer.train):
        switch()
        out.append(torch.cat([whole(one.detach()).flatten().clone() for one in module.parameters()]))
    return out

average, trained = points(model(), lambda one: one)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
sharded = model()
mesh = init_device_mesh("cpu", (2,))
for layer in (sharded[0], sharded[2], sharded):
    fully_shard(layer, mesh=mesh)
found = points(sharded, lambda one: one.full_tensor())
assert torch.allclose(found[0], average, atol=1e-6) and torch.allclose(found[1], trained, atol=1e-6)
assert not torch.allclose(average, trained, atol=1e-4)
dist.barrier()
os._exit(0)  # see tests/faults/process_exit.py
"""


def test_a_schedule_free_optimizer_averages_the_shards_of_fsdp(warm: Warm, tmp_path: Path) -> None:
    """With a schedule-free optimizer, FSDP2 on two processes has the same weights as a single process: the trained
    weights, and their average. (Under ZeRO, the trained weights would be evaluated and saved instead of the average, so
    XP228 refuses it.)
    """
    program = tmp_path / "sharded.py"
    program.write_text(SHARDED)
    command = [warm.of(DEFAULT).python, str(program)]
    runs = [subprocess.Popen([*command, str(rank), str(tmp_path / "meet")]) for rank in range(2)]
    assert [run.wait(300) for run in runs] == [0, 0]
