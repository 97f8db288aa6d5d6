"""On every stack, Muon trains the hidden matrices, and AdamW all other weights. A resumed run restores the states of
both optimizers.
"""

from __future__ import annotations

import math
import os
from array import array
from pathlib import Path

import pytest
from method_runs import STEPS, Warm, tensors
from tiers import FIRST_AND_LAST
from tiny_runs import spec

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

ADAMW = "optimizer adamw(lr=1e-3)"
MUON = "optimizer muon(lr=1e-3, adamw_lr=5e-4)"
ORIGINAL = "optimizer muon(lr=1e-2, adamw_lr=5e-4, adjust_lr=original, clip=0)"
ONE_STEP = {"length": "1 steps", "sizes": "gbs=8 micro=8 seq=64"}


def numbers(folder: str) -> dict[str, array[float]]:
    """The values of each tensor of a model."""
    return {name: array("f", data) for name, data in tensors(os.path.join(folder, "model.safetensors")).items()}


def moved(one: array[float], other: array[float]) -> float:
    """How far a tensor has moved: the root mean square of the differences between two versions of it."""
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / len(one))


def hidden(name: str) -> bool:
    """Whether a weight of the tiny model is one of the matrices that Muon trains."""
    return name.endswith("proj.weight")


def folder(tmp_path: Path, name: str) -> str:
    (tmp_path / name).mkdir()
    return str(tmp_path / name)


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_muon_moves_matrices_and_adamw_the_rest(warm: Warm, tmp_path: Path, target: str) -> None:
    """In the first step, AdamW changes every value by the learning rate, as in a run without Muon.

    Muon changes the values of a matrix of any shape by about 0.2 times the learning rate (root mean square). If the
    gradient has a low rank, the change is smaller.
    """
    text = spec(target=target, **ONE_STEP)
    runs = {
        name: warm.train(text.replace(ADAMW, how), f"muon-{name}-{target}", target, folder(tmp_path, name))
        for name, how in {"muon": MUON, "adamw": "optimizer adamw(lr=5e-4)"}.items()
    }
    line = "[run] muon trains 73,728 weights in 14 hidden matrices at lr 0.001, AdamW the other 66,112 at lr 0.0005"
    assert line in runs["muon"].output
    start, muon, adamw = numbers(os.path.join(warm.location, "tiny")), *(numbers(run.out) for run in runs.values())
    for name, weights in muon.items():
        if hidden(name):
            assert 0.1e-3 < moved(weights, start[name]) < 0.25e-3, name
        else:
            assert weights == adamw[name], name
    assert runs["muon"].values("lr")[0] == 1e-3


def test_a_run_goes_on_with_both_states(warm: Warm, tmp_path: Path) -> None:
    text = spec(length=f"{STEPS} steps", save='save "out" every=2', sizes="gbs=8 micro=8 seq=64").replace(ADAMW, MUON)
    first, again = warm.twice(text, "muon-resumed", DEFAULT, str(tmp_path))
    assert again.summary["resumed_from"] == "checkpoint-2"
    assert numbers(first.out) == numbers(again.out)
    assert again.values("lr") == first.values("lr")[-len(again.values("lr")) :]


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3(reduce_scatter=false)"])
def test_deepspeed_s_muon_learns_the_same_and_goes_on(warm: Warm, tmp_path: Path, strategy: str) -> None:
    """torch's Muon and DeepSpeed's Muon both orthogonalize in bfloat16, but add in a different order. So the losses of
    the two agree only to four digits.
    """
    around = {"length": f"{STEPS} steps", "hardware": "2 x cpu", "save": 'save "out" every=2'}
    text, name = spec(strategy=strategy, **around).replace(ADAMW, ORIGINAL), strategy.partition("(")[0]
    plain = spec(strategy="ddp", **around).replace(ADAMW, ORIGINAL)
    alone = warm.train(plain, f"muon-ddp-{name}", DEFAULT, folder(tmp_path, "ddp"), 2)
    first, again = warm.twice(text, f"muon-{name}", DEFAULT, folder(tmp_path, name), 2)
    assert first.values("loss") == pytest.approx(alone.values("loss"), rel=1e-3)
    assert first.values("lr") == alone.values("lr")
    assert again.summary["resumed_from"] == "checkpoint-2"
    assert numbers(first.out) == numbers(again.out)


@pytest.mark.nightly
def test_muon_trains_adapters_in_half_precision(warm: Warm, tmp_path: Path) -> None:
    """In a run with adapters, Muon trains their matrices. An adapter on the embeddings is trained by AdamW."""
    more = "lora(rank=4, targets=[q_proj, embed_tokens])"
    text = spec(more, length="2 steps").replace(ADAMW, MUON).replace("precision fp32", "precision bf16")
    done = warm.train(text, "muon-lora", DEFAULT, str(tmp_path))
    assert "in 4 hidden matrices" in done.output
