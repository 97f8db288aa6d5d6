"""Compiled runs on a Ray cluster of two nodes (both on this machine) end with the same weights as a run of two
processes on one node.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emitted import FILES, compiled, put
from forks import Forks
from jobs import STEPS, moments, reaches, same, spec, until
from ray_cluster import Cluster, missing
from stacks import environment
from whole_lines import whole_lines

pytestmark = pytest.mark.slow

STAND_IN = """\
#!/usr/bin/env bash
# A line for each start, and what the line of the file `do` says for it.
trap 'echo "asked $NODE_RANK" >>said; exit 75' TERM
echo "$NODE_RANK $PWD $MASTER_ADDR $MASTER_PORT $HF_TOKEN" >>"said-$NODE_RANK"
what=$(sed -n "$(wc -l <"said-$NODE_RANK")p" do)
case "$what" in
  wait) for _ in $(seq 600); do sleep 0.1; done ;;
  fail) if [ "$NODE_RANK" = 1 ]; then exit 3; fi; for _ in $(seq 600); do sleep 0.1; done ;;
  *) exit "${what:-0}" ;;
esac
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray cluster of two nodes with one core each."""
    why = missing()
    if why:
        assert not os.environ.get("XPC_EVERY_TEST"), f"all tests should run, but {why}"
        pytest.skip(why)
    made = Cluster()
    yield made
    made.stop()


def text(strategy: str, folder: Path) -> str:
    return spec(strategy, steps=STEPS, more=f'launch ray(volume="{folder}")')


def submit(
    cluster: Cluster, warm: Forks, location: str, strategy: str, folder: Path, **variables: str
) -> subprocess.Popen[bytes]:
    name = f"ray-{strategy}-{folder.name}"
    os.symlink(os.path.join(location, "tiny"), folder / "tiny")  # the nodes read the model from the shared folder
    bundle = compiled(text(strategy, folder), location, os.path.join(location, f"{name}.bundle"), f"{name}.xp")
    return cluster.submit(bundle, f"{folder}/log", environment(PYTHON=warm.python, **variables))


def log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


@pytest.mark.nightly
def test_what_is_killed_is_started_again(
    cluster: Cluster, warm: Forks, location: str, alone: Callable[[str], str], tmp_path: Path, chance: random.Random
) -> None:
    """First a Ray worker is killed with SIGKILL, and later a training process. Each time, the run continues from the
    newest checkpoint.

    The run ends bit-identical to an undisturbed run of two processes on one node.
    """
    started = submit(cluster, warm, location, "zero2", tmp_path)
    first, second = moments(chance)
    reaches(tmp_path, 1)
    worker = cluster.workers()[0]
    reaches(tmp_path, first)
    os.kill(worker, signal.SIGKILL)
    reaches(tmp_path, second)
    for one in cluster.ranks(1):
        os.kill(one, signal.SIGKILL)
    assert started.wait(900) == 0, log(tmp_path)
    same(tmp_path, alone("zero2"))
    assert log(tmp_path).count("[FailurePolicy] RETRY") == 2, log(tmp_path)


@pytest.mark.nightly
def test_a_rehearsed_job_trains_as_without(
    cluster: Cluster, warm: Forks, location: str, alone: Callable[[str], str], tmp_path: Path
) -> None:
    assert submit(cluster, warm, location, "zero2", tmp_path, XPC_REHEARSE="1").wait(900) == 0, log(tmp_path)
    assert log(tmp_path).count("resuming from checkpoint-") == 1
    assert log(tmp_path).count("the run begins") == 1
    same(tmp_path, alone("zero2"))


@pytest.fixture
def stand_in(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that submits a bundle whose launch.sh is a short script: at its n-th start, it runs the n-th
    line of `starts`. Ray may retry the job once.
    """

    def start(*starts: str) -> subprocess.Popen[bytes]:
        put(str(tmp_path), FILES)
        bundle = compiled(text("zero2", tmp_path), str(tmp_path), str(tmp_path / "job.bundle"), "job.xp")
        (tmp_path / "job.bundle" / "launch.sh").write_text(STAND_IN)
        numbers = json.loads((tmp_path / "job.bundle" / "ray.json").read_text())
        (tmp_path / "job.bundle" / "ray.json").write_text(json.dumps({**numbers, "retries": 1}))
        (tmp_path / "do").write_text("".join(f"{one}\n" for one in starts))
        return cluster.submit(bundle, f"{tmp_path}/log", environment(HF_TOKEN="a-token"))

    return start


def node_lines(folder: Path, node: int) -> list[list[str]]:
    return [line.split() for line in whole_lines(folder / f"said-{node}")]


@pytest.mark.nightly  # the test takes eight minutes
def test_a_stop_is_no_failure_and_a_failure_is_tried_again(
    stand_in: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Ray may retry the job once. At its first start the run stops on request (status 75), which is not a failure and
    uses up no retry. Then it fails twice, so the job ends with the status of the second failure.
    """
    assert stand_in("75", "fail", "fail", "0").wait(900) == 3, log(tmp_path)
    one, other = node_lines(tmp_path, 0), node_lines(tmp_path, 1)
    assert len(one) == len(other) == 3
    assert [line[1:] for line in one] == [line[1:] for line in other]
    assert {(line[1], line[4]) for line in one} == {(str(tmp_path), "a-token")}
    assert log(tmp_path).count("restarting from the newest checkpoint") == 1
    assert "a-token" not in log(tmp_path)


def test_the_end_of_the_job_asks_the_run_to_stop(
    stand_in: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """`ray job stop` sends SIGTERM to ray_job.py, which asks the launch.sh of each node to stop. Then the job ends."""
    started = stand_in("wait")
    until(lambda: node_lines(tmp_path, 0) and node_lines(tmp_path, 1), "both nodes start")
    started.send_signal(signal.SIGTERM)
    until(lambda: len(whole_lines(tmp_path / "said")) == 2, "asked")
    assert started.wait(600) != 0
