"""Adapters train on a CPU, on a base model that is stored in fp8. On loading, the base is converted to a wider
dtype.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from method_runs import Warm, tensors, types
from tiny_runs import spec

pytestmark = pytest.mark.slow

STORE = """
import sys
sys.path.insert(0, sys.argv[2])
import tiny
tiny.store_in_fp8("tiny", sys.argv[1])
"""


def test_adapters_are_trained_over_a_model_in_fp8(warm: Warm, tmp_path: Path) -> None:
    support = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "support")
    warm.program("trl-1.16", STORE, "eight", support)
    assert "F8_E4M3" in types(os.path.join(warm.location, "eight", "model.safetensors"))
    made = {}
    for name in ("eight", "tiny"):
        (tmp_path / name).mkdir()
        text = spec("lora(rank=4)", length="2 steps").replace('"tiny"', f'"{name}"')
        made[name] = warm.train(text, f"over-{name}", "trl-1.16", str(tmp_path / name))
    saved = {name: tensors(os.path.join(done.out, "adapter_model.safetensors")) for name, done in made.items()}
    assert types(os.path.join(made["eight"].out, "adapter_model.safetensors")) == {"F32"}
    assert saved["eight"].keys() == saved["tiny"].keys()
    assert any(one != saved["tiny"][name] for name, one in saved["eight"].items())
    # The other run has the same base, but this base is not rounded to fp8.
    losses = [done.events[-1]["loss"] for done in made.values()]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
