"""A user starts launch.sh by srun, so that it runs on another node, and presses Ctrl-C in the terminal: the run saves a
checkpoint and ends.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from emitted import compiled
from forks import Forks
from jobs import spec
from slurm import Cluster
from terminal import CTRL_C, Terminal

from xpc.runtime.core import checkpoint_integrity

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("option", ["-X", "--pty"])
def test_ctrl_c_under_srun_saves(cluster: Cluster, warm: Forks, location: str, tmp_path: Path, option: str) -> None:
    """With -X, srun passes the first Ctrl-C to every process of the job step. With --pty, the processes have a terminal
    on their node, which sends them the Ctrl-C.

    Without either option, srun answers the first Ctrl-C by printing the state of the job step; a second Ctrl-C within a
    second kills the job step.
    """
    text = spec("zero2", hardware="2 x cpu", nodes=1, steps=4000, more="")
    bundle = compiled(text, location, os.path.join(location, "interrupted.bundle"), "interrupted.xp")
    words = ["srun", option, "--ntasks=1", os.path.join(bundle, "launch.sh")]
    run = Terminal(words, str(tmp_path), **{**cluster.environment, "PYTHON": warm.python})
    metrics = Path(run.out, "metrics.jsonl")
    run.until(lambda: metrics.exists() and metrics.stat().st_size > 0)
    run.type(CTRL_C)
    assert run.wait() == 75, run.output
    assert run.output.count("launch.sh: stopping; a run that has begun to train saves first") == 1, run.output
    newest = max(int(name.split("-")[1]) for name in os.listdir(run.out) if name.startswith("checkpoint-"))
    assert f"the same command resumes from checkpoint-{newest} (status 75)" in run.output
    assert not checkpoint_integrity.broken(os.path.join(run.out, f"checkpoint-{newest}"), True)
