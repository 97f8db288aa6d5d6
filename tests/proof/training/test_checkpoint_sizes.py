"""The compiler predicts the sizes of a checkpoint and of the final model. The tests compare the predictions with the
files of real runs.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from method_runs import Warm
from stacks import payload
from tiny_runs import spec

pytestmark = pytest.mark.slow

SAVED = {"length": "2 steps", "save": 'save "out" every=2 keep=1'}
TWO = {"hardware": "2 x cpu", **SAVED}
ADAMW, PROJECTED = "optimizer adamw(lr=1e-3)", "(targets=all-linear, rank=8)"
HALF = "precision bf16\nmodel(dtype=bf16)"


def with_optimizer(name: str, *more: str) -> str:
    return spec(*more, **SAVED).replace(ADAMW, f"optimizer {name}")


KINDS = {
    "full": spec(**SAVED),
    "half": spec(**SAVED).replace("precision fp32", HALF),
    "scheduled": with_optimizer("schedule_free_adamw(lr=1e-3)"),
    "8bit": with_optimizer("adamw8bit"),
    "projected": with_optimizer(f"galore_adamw{PROJECTED}"),
    "lora": spec("lora(rank=16)", **SAVED),
    "few": spec("lora(rank=16, targets=[q_proj, v_proj])", **SAVED),
    "dora": spec("lora(rank=16, dora)", **SAVED),
    "pissa": spec("lora(rank=16, init=pissa)", **SAVED),
    "weights": spec(**{**SAVED, "save": 'save "out" { every=2, full_state=false }'}),
    "synced": spec("method dpo(sync_reference)", data='"preferences.jsonl"', **SAVED),
    "zero2": spec(strategy="zero2", **TWO),
    "zero2-lora": spec("lora(rank=16)", strategy="zero2", **TWO),
    "zero2-pissa": spec("lora(rank=16, init=pissa)", strategy="zero2", **TWO),
    "zero3": spec(strategy="zero3", **TWO),
    "zero3-lora": spec("lora(rank=16)", strategy="zero3", **TWO),
}
"""The choices that change the size of a checkpoint and can be saved on a CPU: every such strategy, adapter, precision
and kind of optimizer.
"""
OPTIMIZERS = {
    "rmsprop": with_optimizer("rmsprop(lr=1e-3)"),
    "sgd": with_optimizer("sgd(momentum=0.9)"),
    "rmsprop-momentum": with_optimizer("rmsprop(momentum=0.9)"),
    "lion8bit": with_optimizer("lion8bit"),
    "adafactor": with_optimizer("adafactor"),
    "galore-half": with_optimizer(f"galore_adamw{PROJECTED}").replace("precision fp32", HALF),
    "galore-some": with_optimizer("galore_adamw(targets=[attn, up_proj], rank=16)"),
    "galore-lora": with_optimizer("galore_adamw(targets=[q_proj, v_proj], rank=4)", "lora(rank=16)"),
    "galore-factored": with_optimizer(f"galore_adafactor{PROJECTED}"),
    "galore-layerwise": with_optimizer(f"galore_adamw_layerwise{PROJECTED}").replace("micro=2", "micro=8"),
    "apollo": with_optimizer(f"apollo_adamw{PROJECTED}"),
    "apollo-wide": with_optimizer("apollo_adamw(targets=all-linear, rank=256)"),
    "muon": with_optimizer("muon(adamw_lr=1e-4)"),
    "stable": with_optimizer("stable_adamw"),
    "ademamix8bit": with_optimizer("ademamix8bit"),
    "torchao8": with_optimizer("torchao_adamw8bit"),
    "torchao4": with_optimizer("torchao_adamw4bit"),
}
"""Optimizers of torch, bitsandbytes, GaLore, APOLLO and torchao. There is one for each formula of the size of optimizer
states.
"""


def mask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def numbers(path: str) -> int:
    """The size of a safetensors file without its header, in bytes."""
    with open(path, "rb") as handle:
        header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
    return int(max(one["data_offsets"][1] for key, one in header.items() if key != "__metadata__"))


def tensors(folder: str) -> int:
    """The bytes of all tensors in a folder, both weights and optimizer states. Tensor names and file headers do not
    count, because they do not grow with the model.
    """
    total = 0
    for location, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(location, name)
            if name.endswith(".safetensors"):
                total += numbers(path)
            elif zipfile.is_zipfile(path) and not name.startswith(("rng_state", "scheduler", "training_args")):
                with zipfile.ZipFile(path) as archive:
                    total += sum(one.file_size for one in archive.infolist() if "/data/" in one.filename)
    return total


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(one, marks=pytest.mark.nightly) for one in OPTIMIZERS)])
def test_what_is_written_is_what_is_counted(warm: Warm, tmp_path: Path, kind: str) -> None:
    if kind.startswith("torchao"):
        pytest.importorskip("torchao")
    bundle = warm.compiled({**KINDS, **OPTIMIZERS}[kind], f"size-{kind}")
    run, plan = warm.launch(bundle, str(tmp_path)), payload(bundle)["run"]["disk"]
    assert run.done.returncode == 0, run.output
    assert tensors(os.path.join(run.out, "checkpoint-2")) == pytest.approx(plan["checkpoint"], rel=0.03)
    for name in os.listdir(run.out):
        if name.endswith(".safetensors"):
            assert numbers(os.path.join(run.out, name)) == pytest.approx(plan["model"], rel=0.03)
            assert os.stat(os.path.join(run.out, name)).st_mode & 0o777 == 0o666 & ~mask()
    with open(os.path.join(run.out, "README.md"), encoding="utf-8") as handle:
        assert "| base | `tiny` |" in handle.read()
