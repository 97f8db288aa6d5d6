"""A preview shows the same rows whatever hardware, strategy and precision the spec has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from compile_support import put

pytestmark = pytest.mark.nightly

SPEC = """\
xpc 1
train "tiny" on "messages.jsonl" for 6 steps
hardware {hardware}
strategy {strategy}
precision {precision}
batch gbs=16 micro={micro} seq=64 {batch}
method sft(assistant_only)
{more}
save "out"
"""
MACHINES = {
    "one": {},
    "two": {"hardware": "2 x cpu", "strategy": "zero2"},
    "gpus": {"hardware": "8 x h100-80gb", "strategy": "zero3", "precision": "bf16", "more": "memory liger"},
    "fsdp": {"hardware": "8 x h100-80gb", "strategy": "fsdp", "precision": "bf16", "more": "lora(rank=8)"},
    "shared": {"hardware": "4 x h100-80gb", "strategy": "zero3(context_parallel=2)", "precision": "bf16",
               "more": "model(attn=flash2)"},
    "qlora": {"hardware": "1 x a100-80gb", "precision": "bf16", "more": "qlora(rank=8)"},
}  # fmt: skip
"""Settings for several machines, strategies and precisions. The preview itself runs in one process on a CPU."""
DEFAULTS = {"hardware": "cpu", "strategy": "ddp", "precision": "fp32", "micro": 2, "batch": "", "more": ""}


def previewed(folder: Path, **settings: Any) -> list[Any]:
    """Preview the first rows of a spec; return their sequences."""
    put(str(folder), {"run.xp": SPEC.format(**{**DEFAULTS, **settings})})
    done = subprocess.run(
        [sys.executable, "-m", "xpc.compiler.cli", "preview", "run.xp", "--format", "json"],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return [row["sequences"] for row in json.loads(done.stdout)["rows"]]


def test_every_machine_gets_the_rows_of_one_process(tmp_path: Path) -> None:
    tiny.build(str(tmp_path / "tiny"))
    tiny.write_messages(str(tmp_path / "messages.jsonl"), 32)
    rows = {name: previewed(tmp_path, **settings) for name, settings in MACHINES.items()}
    assert all(sequences for sequences in rows["one"])
    assert {name: found for name, found in rows.items() if found != rows["one"]} == {}
