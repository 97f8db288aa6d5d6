"""The tests start the complete launch.sh, send a stop request, and check which processes receive it and with which
status launch.sh ends.

test_kills.py, test_stops.py and test_other_stacks.py start launcher.py without launch.sh, and stop or kill it at random
moments.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import HANGS, Runs, alive, checkpoints, differences, events, result, signalled, text, trainers
from ports import free_port
from stacks import environment
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow
LONG = {"steps": 2000, "every": 1, "save": "every=never"}


class Launched:
    """A started launch.sh and its working folder. Unless ``python`` names another interpreter, its processes are forks
    of a warm interpreter.
    """

    def __init__(self, here: Runs, bundle: str, cwd: str, python: str = "") -> None:
        os.makedirs(cwd, exist_ok=True)
        self.log, self.out = os.path.join(cwd, "log"), os.path.join(cwd, "out")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(bundle, "launch.sh")], cwd=cwd, env=environment(PYTHON=python or here.warm), stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + HANGS
        while not true():
            assert time.monotonic() < end, self.output
            assert self.process.poll() is None, self.output
            time.sleep(0.05)

    @property
    def output(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as handle:
            return handle.read()

    def stopped(self) -> None:
        """Check that the run has saved and ended with status 75."""
        assert self.process.wait(HANGS) == 75, self.output
        assert "Traceback" not in self.output, self.output
        assert self.output.count("launch.sh: stopped as asked") == 1, self.output


WAYS = {
    "one process": (
        text("launch local(launcher=torchrun)", world=1, **LONG),  # type: ignore[arg-type]
        "launcher", [signal.SIGTERM],
    ),
    "accelerate": (text(strategy="zero2", **LONG), "rank", [signal.SIGUSR1, signal.SIGTERM]),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("way", nightly_but(WAYS, lambda way: way == "accelerate"))
def test_signal_to_any_process_saves_and_exits_75(runs: Callable[[str], Runs], tmp_path: Path, way: str) -> None:
    source, who, numbers = WAYS[way]
    here = runs(DEFAULT)
    bundle = here.compiled(source, way.replace(" ", "-"))
    run = Launched(here, bundle, str(tmp_path))
    run.until(lambda: len(events(run.out)) > 1)
    ranks = trainers(str(tmp_path))
    for number in numbers:
        signalled(run.process.pid if who == "launcher" else ranks[-1], number)
        time.sleep(0.1)
    run.stopped()
    saved = checkpoints(run.out)
    assert len(saved) == 1
    assert f"[run] stopped: {saved[0]} is complete\n" in run.output
    assert not any(map(alive, ranks))
    again = here.start(bundle, str(tmp_path))
    again.until_step(int(saved[0].split("-")[1]) + 1)
    again.kill()
    assert f"resuming from {saved[0]}" in again.text


def test_a_process_that_is_killed_is_tried_again(
    runs: Callable[[str], Runs], tmp_path: Path, chance: random.Random
) -> None:
    """If a process is killed, the same launch.sh starts the run again by itself. The result is the same as the result
    of a run that was not disturbed.
    """
    here = runs(DEFAULT)
    bundle = here.compiled(text(strategy="zero2"), "again")
    expected, step = here.alone(bundle), chance.randint(1, 11)
    run = Launched(here, bundle, str(tmp_path))
    run.until(lambda: bool(events(run.out)) and events(run.out)[-1]["step"] >= step)
    signalled(trainers(str(tmp_path))[-1], signal.SIGKILL)
    assert run.process.wait(HANGS) == 0, run.output
    reported = (
        "launch.sh: process 1 was ended by SIGKILL; the machine may have run out of memory (attempt 1 of 4); started"
    )
    assert run.output.count("launch.sh: ") == run.output.count(reported) == 1, run.output
    assert run.output.count("first rows have") == 2, run.output
    assert "Traceback" not in run.output, run.output
    found = differences(result(run.out), expected)
    assert not found, "\n".join(found)


def test_it_is_tried_as_often_as_the_spec_says_and_not_where_that_cannot_help(
    runs: Callable[[str], Runs], tmp_path: Path
) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(text("launch local(retries=1)", world=1, **LONG), "again-once")  # type: ignore[arg-type]
    run = Launched(here, bundle, str(tmp_path / "killed"))
    for attempt in (1, 2):
        run.until(lambda attempt=attempt: run.output.count("first rows have") == attempt)  # type: ignore[misc]
        signalled(trainers(str(tmp_path / "killed"))[-1], signal.SIGKILL)
    assert run.process.wait(HANGS) == 137, run.output
    # A killed process may leave an unfinished line, so the launcher's message need not begin one.
    ends = re.findall(r"launch\.sh: the process was ended by SIGKILL.*\(attempt (\d of \d)(.*)", run.output)
    assert [(attempt, "started again" in rest) for attempt, rest in ends] == [("1 of 2", True), ("2 of 2", False)], (
        run.output
    )
    (tmp_path / "refused" / "out").mkdir(parents=True)
    (tmp_path / "refused" / "out" / "model.safetensors").write_text("")
    refused = Launched(here, bundle, str(tmp_path / "refused"))
    assert refused.process.wait(HANGS) == 1, refused.output
    assert "contains no run of a bundle" in refused.output
    assert "attempt" not in refused.output


def hears(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as handle:
        caught = next(line for line in handle if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)


def test_before_training_there_is_nothing_to_wait_for(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    """A stop request before the first step ends the run without a checkpoint. The request arrives while the launcher
    checks files, or while the processes import libraries.
    """
    here = runs(DEFAULT)
    bundle = here.compiled(text("launch local(launcher=torchrun)", **LONG), "torchrun")  # type: ignore[arg-type]
    begun = {
        signal.SIGTERM: lambda run: hears(run.process.pid),
        signal.SIGUSR1: lambda run: "first rows have" in run.output,
    }
    for number, true in begun.items():
        # A warm interpreter would handle the signal before the launcher does, so this launcher runs in a new
        # interpreter.
        run = Launched(here, bundle, str(tmp_path), here.python if number == signal.SIGTERM else "")
        run.until(lambda true=true, run=run: bool(true(run)))  # type: ignore[misc]
        signalled(run.process.pid, number)
        run.stopped()
        assert checkpoints(run.out) == []


def test_signal_to_the_second_node_saves(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(text("nodes 2", world=1, **LONG), "nodes")  # type: ignore[arg-type]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    nodes = [here.launch(bundle, str(tmp_path), NODE_RANK=str(rank), **where) for rank in range(2)]
    nodes[0].until(lambda: len(events(nodes[0].out)) > 1)
    signalled(nodes[1].pids[0], signal.SIGUSR1)
    for node in nodes:
        assert node.wait() == [75], node.text
        assert node.text.count("launch.sh: stopped as asked") == 1, node.text
        node.check()
    assert len(checkpoints(nodes[0].out)) == 1


@pytest.mark.nightly
def test_nodes_that_were_started_by_hand_start_again_together(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    """If a process on one of the nodes is killed, the launchers of all nodes restart their processes, which then
    connect to each other again.
    """
    here = runs(DEFAULT)
    bundle = here.compiled(text("nodes 2", world=1, steps=40), "nodes-again")
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "XPC_RETRIES": "1"}
    nodes = [here.launch(bundle, str(tmp_path), NODE_RANK=str(rank), **where) for rank in range(2)]
    nodes[0].until(lambda: len(events(nodes[0].out)) > 1)
    signalled(nodes[1].ranks[-1], signal.SIGKILL)
    assert [node.wait() for node in nodes] == [[0], [0]], nodes[0].text + nodes[1].text
    assert "process 1 was ended by SIGKILL; the machine may have run out of memory (attempt 1 of 2)" in nodes[1].text
    assert "process 0 ended with status 76; its message is above (attempt 1 of 2); started again" in nodes[0].text
    assert [event["step"] for event in events(nodes[0].out)] == list(range(2, 41, 2))
