"""Compiled runs on two nodes of a real Slurm: they learn what two processes of one node learn, to the last bit.

No tolerance: the world size, the order of the rows and every sum are the same. Two addends have one sum in either
order, and what carries them between the processes adds nothing. With more ranks the order of a sum may depend on how
they are laid out, and its last digit with it.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from emitted import compiled
from forks import Forks
from jobs import spec, until
from slurm import Cluster
from stacks import environment

pytestmark = pytest.mark.slow

STEPS = 30


@pytest.fixture(scope="module")
def alone(warm: Forks, place: str) -> Callable[[str], str]:
    """The run of a strategy as two processes of one node, once: its folder."""
    done = {}

    def run(strategy: str) -> str:
        if strategy not in done:
            name = f"alone-{strategy}"
            text = spec(strategy, hardware="2 x cpu", nodes=1, steps=STEPS, more="")
            bundle = compiled(text, place, os.path.join(place, f"{name}.bundle"), f"{name}.xp")
            cwd = os.path.join(place, name)
            os.mkdir(cwd)
            said = warm.run(bundle, cwd, world=2)
            assert said["status"] == [0, 0], said["err"]
            done[strategy] = cwd
        return done[strategy]

    return run


@pytest.fixture
def trains(cluster: Cluster, warm: Forks, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, with the environment of a training."""
    monkeypatch.setattr(cluster, "environment", environment(**cluster.environment, PYTHON=warm.python))
    return cluster


def submit(cluster: Cluster, place: str, strategy: str, cwd: Path) -> str:
    name = f"two-{strategy}-{cwd.name}"
    text = spec(strategy, steps=STEPS)
    bundle = compiled(text, place, os.path.join(place, f"{name}.bundle"), f"{name}.xp")
    return cluster.submit(os.path.join(bundle, "job.sbatch"), cwd=str(cwd))


def events(cwd: str) -> list[dict[str, Any]]:
    path = os.path.join(cwd, "out", "metrics.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as handle:
        return [one for one in map(json.loads, handle) if "loss" in one]


def log(cwd: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in cwd.glob("*.log"))


def told(cluster: Cluster, job: dict[str, str], cwd: Path) -> str:
    return f"{job}\n{log(cwd)}\n{cluster.logs()}"


def weights(cwd: str) -> str:
    with open(os.path.join(cwd, "out", "model.safetensors"), "rb") as handle:
        return sha256(handle.read()).hexdigest()


def same(cwd: Path, alone: str) -> None:
    """Every step once, in order, with the very loss and gradient of the other run; and the very weights."""
    one, other = events(alone), events(str(cwd))
    assert [event["step"] for event in other] == list(range(1, STEPS + 1)), log(cwd)
    for name in ("loss", "grad_norm", "lr", "tokens"):
        assert [event[name] for event in other] == [event[name] for event in one]
    assert weights(str(cwd)) == weights(alone)
    with open(cwd / "out" / "summary.json", encoding="utf-8") as handle:
        summary = json.load(handle)
    assert (summary["steps"], summary["sequences"]) == (STEPS, 8 * STEPS)


def moments(chance: random.Random) -> list[int]:
    """Two steps of a run, at which something happens to it."""
    return [chance.randint(1, 11), chance.randint(15, 25)]


def reaches(cwd: Path, step: int) -> None:
    """Waits until a run tells of a step."""
    until(lambda: [one for one in events(str(cwd)) if one["step"] >= step], f"step {step}")


def test_asked_to_stop_it_goes_on_where_it_was(
    trains: Cluster, place: str, alone: Callable[[str], str], tmp_path: Path, chance: random.Random
) -> None:
    """The signal that Slurm sends before the limit; no step is lost, and none is done twice."""
    number = submit(trains, place, "zero2", tmp_path)
    for step in moments(chance):
        reaches(tmp_path, step)
        trains.run("scancel", "--signal=USR1", "--batch", number)
    job = trains.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "2"), told(trains, job, tmp_path)
    assert log(tmp_path).count("going on from checkpoint-") == 2
    same(tmp_path, alone("zero2"))


def test_a_lost_node_costs_the_steps_since_the_checkpoint(
    trains: Cluster, place: str, alone: Callable[[str], str], tmp_path: Path, chance: random.Random
) -> None:
    """All that ran there is killed; the job finds it out itself, long before Slurm does, and goes on with another."""
    number, lost = submit(trains, place, "zero3", tmp_path), []
    try:
        for restarts, step in enumerate(moments(chance), 1):
            reaches(tmp_path, step)
            lost.append(nodes(trains, trains.job(number))[-1])  # the first one has the batch shell
            trains.kill_node(lost[-1])
            again(trains, number, restarts, tmp_path)
            trains.notice(lost[-1])
        job = trains.wait(number)
    finally:
        for node in lost:
            trains.start_node(node)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "2"), told(trains, job, tmp_path)
    assert not set(nodes(trains, job)) & set(lost)
    assert log(tmp_path).count("Task launch for StepId=") == 2
    assert log(tmp_path).count("going on from checkpoint-") >= 1  # the first may have come before there was one
    same(tmp_path, alone("zero3"))


def nodes(cluster: Cluster, job: dict[str, str]) -> list[str]:
    """The names of the nodes of a job."""
    return cluster.run("scontrol", "show", "hostnames", job["NodeList"]).stdout.split()


def again(cluster: Cluster, number: str, restarts: int, cwd: Path) -> None:
    """Waits until a job has queued itself again, and until it may start again on a node that it was on."""
    try:
        until(lambda: cluster.job(number).get("Restarts") == str(restarts), "the job queues itself again", 150)
    except TimeoutError:
        pytest.fail(told(cluster, cluster.job(number), cwd))
    time.sleep(2)  # a node starts no job whose credential is of the second in which it ended the job's last run
