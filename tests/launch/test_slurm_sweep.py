"""A Slurm array runs every member of a sweep, each from its own bundle. launch.sh is replaced by a short script that
trains nothing.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from emitted import FILES, compiled, put
from jobs import SPEC, repinned, until
from slurm import Cluster
from whole_lines import whole_lines

from xpc.compiler.engines.slurm import LARGEST_ARRAY

pytestmark = pytest.mark.slow

STAND_IN = """\
#!/usr/bin/env bash
# Says which bundle it is of, and for which node.
here=$(readlink -f -- "${BASH_SOURCE[0]}")
here=${here%/*}
echo "$NODE_RANK ${here##*/}" >>"said-$SLURM_ARRAY_TASK_ID"
"""
SWEEP = "launch slurm\nsweep {\n  seed = [1, 2]\n  zip {\n    warmup = [1, 2]\n    clip = [0.5, 1]\n  }\n}"


def written(location: Path) -> str:
    """Compile a sweep of four members, each on two nodes. The folder's name contains a space."""
    put(str(location), FILES)
    text = SPEC.format(
        data="messages.jsonl", steps=4, hardware="cpu", nodes="nodes 2\n", strategy="ddp", seq="", more=SWEEP
    )
    return compiled(text, str(location), str(location / "the scan"))


def test_every_task_runs_the_member_of_its_number(cluster: Cluster, tmp_path: Path) -> None:
    folder = written(tmp_path)
    with open(os.path.join(folder, "sweep.toml"), "rb") as handle:
        names = [one["name"] for one in tomllib.load(handle)["member"]]
    assert len(names) == 4
    for name in names:
        put(os.path.join(folder, "members", name), {"launch.sh": STAND_IN})
        os.chmod(os.path.join(folder, "members", name, "launch.sh"), 0o755)
    repinned(folder, [os.path.join(folder, "members", name) for name in names])
    job = os.path.join(folder, "job.sbatch")
    number = cluster.submit(job, cwd=str(tmp_path))

    def all_said() -> bool:
        files = [tmp_path / f"said-{index}" for index in range(len(names))]
        return all(len(whole_lines(one)) == 2 for one in files)

    until(all_said, "every task has run on both nodes")
    for index, name in enumerate(names):
        assert sorted((tmp_path / f"said-{index}").read_text().splitlines()) == [f"0 {name}", f"1 {name}"]
    logs = sorted(one.name for one in tmp_path.glob("*.log"))
    assert logs == [f"spec-{number}_{index}.log" for index in range(len(names))]

    again = cluster.submit("--array=2", job, cwd=str(tmp_path))
    cluster.wait(again)
    assert len((tmp_path / "said-2").read_text().splitlines()) == 4
    assert (tmp_path / f"spec-{again}_2.log").exists()


@pytest.mark.parametrize(("last", "taken"), [(999, True), (LARGEST_ARRAY - 1, True), (LARGEST_ARRAY, False)])
def test_slurm_takes_an_array_as_large_as_the_rule_says(
    cluster: Cluster, tmp_path: Path, last: int, taken: bool
) -> None:
    """XP888 warns if a sweep needs more than 1,001 tasks. Slurm's own limit is the same if slurm.conf does not set
    MaxArraySize, as on this cluster.
    """
    job = os.path.join(written(tmp_path), "job.sbatch")
    done = cluster.run("sbatch", "--test-only", f"--array=0-{last}", job, cwd=str(tmp_path))
    assert (done.returncode == 0) is taken, done.stderr
    assert taken or "Invalid job array specification" in done.stderr
