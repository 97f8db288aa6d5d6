"""FSDP2's checkpoints are read by another number of processes, each kind, weights and optimizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from patience import HUNG
from ports import free_port
from stacks import interpreter

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))


def run(target: str, phase: str, folder: Path, world: int) -> None:
    """The program in so many processes."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common = {**where, "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    words = [interpreter(target), os.path.join(HERE, "fsdp_states.py"), phase, str(folder)]
    started = [
        subprocess.Popen(words, env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(world)
    ]  # fmt: skip
    said = [one.communicate(timeout=HUNG)[0] for one in started]
    assert not any(one.returncode for one in started), said


@pytest.mark.parametrize("target", [DEFAULT])
def test_other_processes_load_what_two_have_saved(target: str, tmp_path: Path) -> None:
    import torch

    run(target, "save", tmp_path, 2)
    run(target, "load", tmp_path, 3)
    for kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT"):
        was, now = (torch.load(tmp_path / f"{kind}-{phase}.pt") for phase in ("save", "load"))
        for part in ("weights", "states"):
            torch.testing.assert_close(now["loaded"][part], was["loaded"][part], rtol=0, atol=0)
            torch.testing.assert_close(now["trained"][part], was["trained"][part], rtol=1e-5, atol=1e-6)
        assert not torch.equal(was["trained"]["weights"]["0.weight"], was["loaded"]["weights"]["0.weight"])
