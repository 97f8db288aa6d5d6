"""A sweep of 1,000 members as a Slurm array. All members are compiled; one of them is run on the CPU."""

from __future__ import annotations

import os
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest
from emitted import compiled
from patience import HUNG
from stacks import Run, environment, payload
from tiny_runs import spec

from xpc.compiler.stacks import DEFAULT

if TYPE_CHECKING:
    from method_runs import Warm

pytestmark = pytest.mark.slow

RATES = [f"{one}e-5" for one in range(1, 51)]
SEEDS = range(20)
SWEEP = f"sweep {{\n  lr = [{', '.join(RATES)}]\n  seed = [{', '.join(map(str, SEEDS))}]\n}}"
INDEX = 843
"""The test runs only one member of the sweep. It has this index: the 43rd learning rate with the fourth seed."""
NAME = "lr=0.00043,seed=3"


@pytest.fixture(scope="module")
def folder(location: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    text = spec("launch slurm(time=1h)", SWEEP, length="2 steps").replace("optimizer adamw(lr=1e-3)\n", "")
    return compiled(text, location, str(tmp_path_factory.mktemp("sweep") / "s"))


def test_a_thousand_bundles_are_one_array(folder: str) -> None:
    with open(os.path.join(folder, "sweep.toml"), "rb") as handle:
        names = [one["name"] for one in tomllib.load(handle)["member"]]
    assert len(names) == len(set(names)) == 1000
    assert names[INDEX] == NAME
    assert sorted(os.listdir(os.path.join(folder, "members"))) == sorted(names)
    with open(os.path.join(folder, "job.sbatch"), encoding="utf-8") as handle:
        assert "#SBATCH --array=0-999\n" in handle.read()
    trainers = {os.stat(os.path.join(folder, "members", name, "trainer", "main.py")).st_ino for name in names}
    assert len(trainers) == 1


def test_one_member_runs_alone(folder: str, location: str, warm: Warm) -> None:
    plan = payload(os.path.join(folder, "members", NAME))
    done = subprocess.run(
        [os.path.join(folder, "launch.sh"), str(INDEX)], cwd=location, text=True, capture_output=True, timeout=HUNG,
        env=environment(PYTHON=warm.of(DEFAULT).python), check=False,
    )  # fmt: skip
    run = Run(done, os.path.join(location, plan["arguments"]["output_dir"]))
    assert done.returncode == 0, run.output
    assert run.out.endswith(f"/out/{NAME}")
    assert run.steps == [1, 2]
    assert run.summary["steps"] == 2
    assert max(event.get("learning_rate", event.get("lr", 0)) for event in run.metrics) == pytest.approx(43e-5)
