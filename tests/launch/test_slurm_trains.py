"""A compiled run on two nodes of a real Slurm cluster ends with bit-identical weights to a run of two processes on one
node.

No tolerance is needed: both runs have the same world size and order of rows, a sum of two values does not depend on
their order, and communication does not change values. With more than two ranks, the order of the values in a sum could
depend on the nodes of the ranks. Then the last digit of the sum could differ.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from emitted import compiled
from forks import Forks
from jobs import STEPS, moments, reaches, same, spec, until
from slurm import Cluster
from stacks import environment

pytestmark = pytest.mark.slow


@pytest.fixture
def trains(cluster: Cluster, warm: Forks, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A test cluster whose jobs have the environment variables that training needs."""
    monkeypatch.setattr(cluster, "environment", environment(**cluster.environment, PYTHON=warm.python))
    return cluster


def submit(cluster: Cluster, location: str, strategy: str, cwd: Path) -> str:
    name = f"two-{strategy}-{cwd.name}"
    text = spec(strategy, steps=STEPS)
    bundle = compiled(text, location, os.path.join(location, f"{name}.bundle"), f"{name}.xp")
    return cluster.submit(os.path.join(bundle, "job.sbatch"), cwd=str(cwd))


def log(cwd: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in cwd.glob("*.log"))


def job_report(cluster: Cluster, job: dict[str, str], cwd: Path) -> str:
    return f"{job}\n{log(cwd)}\n{cluster.logs()}"


def test_stopped_job_continues_where_it_was(
    trains: Cluster, location: str, alone: Callable[[str], str], tmp_path: Path, chance: random.Random
) -> None:
    """Slurm sends a signal before the time limit. The run stops, and the requeued job loses and repeats no step."""
    number = submit(trains, location, "zero2", tmp_path)
    for step in moments(chance):
        reaches(tmp_path, step)
        trains.run("scancel", "--signal=USR1", "--batch", number)
    job = trains.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "2"), job_report(trains, job, tmp_path)
    assert log(tmp_path).count("resuming from checkpoint-") == 2
    same(tmp_path, alone("zero2"))


@pytest.mark.nightly
def test_a_rehearsed_job_trains_as_without(
    trains: Cluster, location: str, alone: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trains, "environment", {**trains.environment, "XPC_REHEARSE": "1"})
    job = trains.wait(submit(trains, location, "zero2", tmp_path))
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "0"), job_report(trains, job, tmp_path)
    assert log(tmp_path).count("resuming from checkpoint-") == 1
    assert log(tmp_path).count("the run begins") == 1
    assert not (tmp_path / "out.rehearsal").exists()
    same(tmp_path, alone("zero2"))


@pytest.mark.nightly
def test_a_lost_node_costs_the_steps_since_the_checkpoint(
    trains: Cluster, location: str, alone: Callable[[str], str], tmp_path: Path, chance: random.Random
) -> None:
    """All processes of a node are killed. The job notices this long before Slurm does, and requeues itself, so that it
    runs on another node.
    """
    number, lost = submit(trains, location, "zero3", tmp_path), []
    try:
        for restarts, step in enumerate(moments(chance), 1):
            reaches(tmp_path, step)
            lost.append(nodes(trains, trains.job(number))[-1])  # the job's batch shell runs on the first node
            trains.kill_node(lost[-1])
            again(trains, number, restarts, tmp_path)
            trains.notice(lost[-1])
        job = trains.wait(number)
    finally:
        for node in lost:
            trains.start_node(node)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "2"), job_report(trains, job, tmp_path)
    assert not set(nodes(trains, job)) & set(lost)
    assert log(tmp_path).count("Task launch for StepId=") == 2
    # only one resume if the first kill came before the first checkpoint
    assert log(tmp_path).count("resuming from checkpoint-") >= 1
    same(tmp_path, alone("zero3"))


def test_a_killed_process_costs_the_steps_since_the_checkpoint(
    trains: Cluster, location: str, alone: Callable[[str], str], tmp_path: Path, chance: random.Random
) -> None:
    """After `kill -9` of a rank, on whichever node, the job restarts the run on the same nodes. Slurm does not requeue
    the job.
    """
    number = submit(trains, location, "zero2", tmp_path)
    for rank, step in enumerate(moments(chance)):
        reaches(tmp_path, step)
        os.kill(process(number, rank), signal.SIGKILL)
    job = trains.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "0"), job_report(trains, job, tmp_path)
    for attempt in (1, 2):
        line = f"launch.sh: process {attempt - 1} was ended by SIGKILL; the machine may have run out of memory"
        assert f"{line} (attempt {attempt} of 4)" in log(tmp_path), job_report(trains, job, tmp_path)
        assert log(tmp_path).count(f"if there is one: attempt {attempt + 1} of 4") == 1
    same(tmp_path, alone("zero2"))


def process(job: str, rank: int) -> int:
    """The process with a given rank of a job. All nodes of the test cluster are on this machine."""
    wanted = {f"SLURM_JOB_ID={job}", f"RANK={rank}"}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = set(Path("/proc", name, "environ").read_text(errors="replace").split("\0"))
        except OSError:
            continue
        if wanted <= environ:
            return int(name)
    raise AssertionError(f"no process {rank} of job {job}")


def nodes(cluster: Cluster, job: dict[str, str]) -> list[str]:
    """The names of the nodes of a job."""
    return cluster.run("scontrol", "show", "hostnames", job["NodeList"]).stdout.split()


def again(cluster: Cluster, number: str, restarts: int, cwd: Path) -> None:
    """Wait until a job has requeued itself, and two seconds more: Slurm does not restart a job on a node in the second
    in which it ended there.
    """
    try:
        until(lambda: cluster.job(number).get("Restarts") == str(restarts), "the job queues itself again")
    except TimeoutError:
        pytest.fail(job_report(cluster, cluster.job(number), cwd))
    # Slurm does not restart a job on a node within the same second in which the job ended there
    time.sleep(2)
