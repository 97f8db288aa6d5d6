"""What the compiler chooses where a spec is silent: what the plan calls fastest among what fits, and nothing else."""

from __future__ import annotations

import os
from itertools import product

import pytest

from xpc.compiler.files import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import FITS
from xpc.compiler.plan.changed import changed
from xpc.compiler.plan.experiment import plan
from xpc.compiler.resolve.divisors import divisors
from xpc.compiler.spec import CheckedSpec

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = "xpc 1\ntrain {model} on infinity-instruct:0625 for 1 epochs\nhardware {hardware}\n{more}\nbatch {batch}\n"
RUNS = [
    ("qwen2.5-0.5b", "1 x h100-80gb", "", "gbs=64 seq=2048"),
    ("qwen2.5-3b", "8 x h100-80gb", "", "gbs=128 seq=4096"),
    ("qwen2.5-3b", "8 x v100-32gb", "", "gbs=528"),
    ("qwen2.5-7b", "8 x a100-80gb", "zero3", "gbs=96 seq=4096"),
    ("llama-3.1-8b-instruct", "16 x h100-80gb", "lora", "gbs=64 seq=8192"),
    ("gemma-3-1b-it", "8 x h100-80gb", "memory(liger)", "gbs=64 seq=32768"),
    ("qwen3-0.6b", "4 x a100-40gb", "target trl-0.18", "gbs=36 seq=1024"),
]


def resolved(model: str, hardware: str, more: str, batch: str) -> tuple[CheckedSpec, list[str]]:
    text = SPEC.format(model=model, hardware=hardware, more=more, batch=batch)
    found = check_text(text.encode(), "t.xp", Workspace(ROOT))
    assert found.spec is not None, [one.message for one in found.problems]
    return found.spec, [one.message for one in found.problems]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run[0]} {run[1]} {run[2]}")
def test_nothing_that_fits_is_predicted_to_be_faster(run: tuple[str, str, str, str]) -> None:
    """Every micro-batch, with and without recomputation, is planned: none that fits has more tokens a second."""
    spec, notes = resolved(*run)
    chosen = plan(spec)
    assert chosen.verdict == FITS
    assert chosen.speed is not None
    for micro, recompute in product(divisors(10**9, spec.integer("batch.gbs") // spec.replicas), (False, True)):
        other = plan(changed(spec, {"batch.micro": micro, "memory.checkpointing": recompute}))
        assert other.speed is not None
        if other.verdict == FITS:
            assert other.speed.tokens <= chosen.speed.tokens * 1.000001, (micro, recompute)
    for path in ("memory.checkpointing", "batch.micro"):
        assert spec.values[path].origin.why  # type: ignore[index]
    told = [one for one in notes if "no checkpointing is written" in one]
    assert len(told) == (not spec.flag("memory.checkpointing"))
    assert [one for one in notes if "no micro-batch is written" in one]


def test_the_least_sharding_that_fits_is_taken_and_what_is_written_stays() -> None:
    spec, _ = resolved("qwen2.5-3b", "8 x h100-80gb", "", "gbs=128 seq=4096")
    assert spec.text("strategy") == "zero1"
    ddp = changed(spec, {"strategy": "ddp"})
    for micro, recompute in product((1, 2, 4, 8, 16), (False, True)):
        assert plan(changed(ddp, {"batch.micro": micro, "memory.checkpointing": recompute})).verdict != FITS
    spec, _ = resolved("qwen2.5-0.5b", "8 x h100-80gb", "", "gbs=128 seq=2048")
    assert spec.text("strategy") == "ddp"
    for path, text, value in (
        ("memory.checkpointing", "memory(checkpointing)", True),
        ("memory.checkpointing", "memory(checkpointing = false)", False),
        ("strategy", "zero3", "zero3"),
    ):
        spec, notes = resolved("qwen2.5-0.5b", "8 x h100-80gb", text, "gbs=128 micro=4 seq=2048")
        assert (spec.get(path), spec.integer("batch.micro")) == (value, 4)  # type: ignore[call-overload]
        assert not [one for one in notes if f"no {path.rpartition('.')[2]} is written" in one]


def test_what_is_learned_is_that_of_the_spec() -> None:
    """With every value written out that was chosen, the same run comes out; and none of them is about the data."""
    open_, _ = resolved("qwen2.5-3b", "8 x h100-80gb", "", "gbs=128 seq=4096")
    more = "zero1\nmemory(checkpointing = {})".format(str(open_.flag("memory.checkpointing")).lower())
    written, _ = resolved("qwen2.5-3b", "8 x h100-80gb", more, f"gbs=128 seq=4096 micro={open_.integer('batch.micro')}")
    assert {path: value.value for path, value in open_.values.items()} == {
        path: value.value for path, value in written.values.items()
    }
    small, _ = resolved("qwen2.5-3b", "8 x h100-80gb", "ddp\nmemory(checkpointing)\nlora", "gbs=128 seq=4096 micro=1")
    for path in ("batch.gbs", "batch.seq", "train.epochs", "data.seed", "optimizer.lr", "precision", "seed"):
        assert open_.get(path) == small.get(path), path  # type: ignore[call-overload]


@pytest.mark.parametrize("more", ["hardware 8 x cpu", "freeze(except_last = 2)", "memory(offload_activations)"])
def test_what_the_plan_does_not_know_recomputes(more: str) -> None:
    hardware = "8 x h100-80gb" if "cpu" not in more else more.removeprefix("hardware ")
    spec, notes = resolved("qwen2.5-0.5b", hardware, "" if "cpu" in more else more, "gbs=16 seq=1024")
    assert spec.flag("memory.checkpointing")
    assert spec.text("strategy") == "ddp"
    assert not [one for one in notes if "no checkpointing is written" in one]
