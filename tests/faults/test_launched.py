"""launch.sh, whole: who hears the wish to stop, and what it exits with.

The launchers that it becomes are stopped and killed at random moments in test_kills.py, test_stops.py and
test_older_stack.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
from fault_runs import HANGS, Runs, alive, checkpoints, children, events, signalled, text
from stacks import environment

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow
LONG = {"steps": 2000, "every": 1, "save": "every=never"}


class Launched:
    """A launch.sh that runs in a folder."""

    def __init__(self, here: Runs, bundle: str, cwd: str) -> None:
        os.makedirs(cwd, exist_ok=True)
        self.log, self.out = os.path.join(cwd, "log"), os.path.join(cwd, "out")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(bundle, "launch.sh")], cwd=cwd, env=environment(PYTHON=here.python), stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + HANGS
        while not true():
            assert time.monotonic() < end, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    @property
    def said(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as handle:
            return handle.read()

    def stopped(self) -> None:
        """Has saved, and asks to be started again."""
        assert self.process.wait(HANGS) == 75, self.said
        assert "Traceback" not in self.said, self.said
        assert self.said.count("launch.sh: stopped as asked") == 1, self.said


WAYS = {
    "one process": (text(world=1, **LONG), "launcher", [signal.SIGTERM]),  # type: ignore[arg-type]
    "accelerate": (text(strategy="zero2", **LONG), "rank", [signal.SIGUSR1, signal.SIGTERM]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("way", WAYS)
def test_whoever_is_asked_the_run_saves_and_exits_75(runs: Callable[[str], Runs], tmp_path: object, way: str) -> None:
    source, who, numbers = WAYS[way]
    here = runs(DEFAULT)
    bundle = here.compiled(source, way.replace(" ", "-"))
    run = Launched(here, bundle, str(tmp_path))
    run.until(lambda: len(events(run.out)) > 1)
    ranks = children(run.process.pid)
    for number in numbers:
        signalled(run.process.pid if who == "launcher" else ranks[-1], number)
        time.sleep(0.1)
    run.stopped()
    saved = checkpoints(run.out)
    assert len(saved) == 1
    assert f"[run] stopped as asked: {saved[0]} is whole; the same command goes on from it" in run.said
    assert not any(map(alive, ranks))
    again = here.start(bundle, str(tmp_path))
    again.until_step(int(saved[0].split("-")[1]) + 1)
    again.kill()
    assert f"going on from {saved[0]}" in again.text


def hears(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as handle:
        caught = next(line for line in handle if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)


def test_before_training_there_is_nothing_to_wait_for(runs: Callable[[str], Runs], tmp_path: object) -> None:
    """While the launcher looks at the files, and while its processes load the libraries."""
    here = runs(DEFAULT)
    bundle = here.compiled(text("launch local(launcher=torchrun)", **LONG), "torchrun")  # type: ignore[arg-type]
    begun = {
        signal.SIGTERM: lambda run: hears(run.process.pid),
        signal.SIGUSR1: lambda run: "first rows have" in run.said,
    }
    for number, true in begun.items():
        run = Launched(here, bundle, str(tmp_path))
        run.until(lambda true=true, run=run: bool(true(run)))  # type: ignore[misc]
        signalled(run.process.pid, number)
        run.stopped()
        assert checkpoints(run.out) == []


def test_the_second_node_is_asked(runs: Callable[[str], Runs], tmp_path: object) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(text("nodes 2", world=1, **LONG), "nodes")  # type: ignore[arg-type]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    nodes = [here.launch(bundle, str(tmp_path), NODE_RANK=str(rank), **where) for rank in range(2)]
    nodes[0].until(lambda: len(events(nodes[0].out)) > 1)
    signalled(nodes[1].pids[0], signal.SIGUSR1)
    for node in nodes:
        assert node.wait() == [75], node.text
        assert node.text.count("launch.sh: stopped as asked") == 1, node.text
        node.check()
    assert len(checkpoints(nodes[0].out)) == 1
