"""The runtime sets the visible GPUs, peer-to-peer access and groups of ranks. It does so before the libraries look at
the machine.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest
from run_features import read
from runtime_bundles import plan, source, write

from xpc.runtime.core import arguments
from xpc.runtime.core import bundle as bundles
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle

VARIABLES = ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR", "TOKENIZERS_PARALLELISM", "TRL_EXPERIMENTAL_SILENCE",
             "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")  # fmt: skip


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the process's environment after each test."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "kept")
        monkeypatch.delenv(name)


def on_gpus(folder: Path, world: int, name: str = "H100") -> Bundle:
    facts = plan("tiny", [source("rows.jsonl")], world=world)
    facts["run"].update(device="cuda", gpu={"name": name, "device_names": [name]})
    return read(write(str(folder / "made.bundle"), facts))


@pytest.mark.parametrize(
    ("world", "before", "after"),
    [
        (1, None, "0"),
        (1, "2,3", "2"),
        (1, "", ""),
        (1, "GPU-8f2a,GPU-77b1", "GPU-8f2a"),
        (2, None, None),
        (2, "2,3", "2,3"),
    ],
)
def test_one_process_sees_one_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int, before: str | None, after: str | None
) -> None:
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    arguments.prepare_environment(on_gpus(tmp_path, world))
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == after


@pytest.mark.parametrize(
    ("able", "world", "name", "off"),
    [
        (False, 2, "RTX 4090", True),
        (True, 2, "RTX 4090", False),
        (False, 1, "RTX 4090", False),
        # A bundle for H100s does not test peer-to-peer access: its preflight already refuses RTX 40 cards, which may
        # lack it.
        (False, 2, "H100", False),
    ],
)
def test_peer_to_peer_is_switched_off_where_the_driver_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool, world: int, name: str, off: bool
) -> None:
    class Requested(Exception):
        """Raised when the tested function wants to read the arguments. This ends the function."""

    def refused(**_: object) -> None:
        raise Requested

    utils = types.SimpleNamespace(check_cuda_p2p_ib_support=lambda: able)
    monkeypatch.setitem(sys.modules, "accelerate", types.SimpleNamespace(utils=utils))
    monkeypatch.setitem(sys.modules, "accelerate.utils", utils)
    monkeypatch.setattr(arguments, "load_class", lambda _: refused)
    monkeypatch.setattr(arguments.torch_distributed, "one_timeout", lambda _: None)  # would import torch
    with pytest.raises(Requested):
        arguments.build_arguments(on_gpus(tmp_path, world, name))
    assert [os.environ.get(name) for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")] == ["1" if off else None] * 2


def test_groups_that_share_a_sequence_count_once() -> None:
    run = {"micro": 4, "accumulation": 2, "gbs": 16, "world_size": 4, "context_parallel": 2}
    bundles.check_world(run, {"WORLD_SIZE": "4"})
    with pytest.raises(RunError, match="8 / 2 x 4 sequences x 2 accumulation is 32, not the global batch of 16"):
        bundles.check_world(run, {"WORLD_SIZE": "8"})
