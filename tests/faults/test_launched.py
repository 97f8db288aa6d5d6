"""launch.sh, whole: who hears the wish to stop, what it exits with, and who outlives whom."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
from emitted import NEW, OLD
from fault_runs import Runs, alive, checkpoints, events, text
from stacks import environment, interpreter, payload

pytestmark = pytest.mark.slow
LONG = {"steps": 2000, "every": 1, "save": "every=never"}
TORCHRUN = "launch local(launcher=torchrun)"


class Launched:
    """A launch.sh that runs in a folder."""

    def __init__(self, bundle: str, cwd: str, **variables: str) -> None:
        os.makedirs(cwd, exist_ok=True)
        self.log, self.out = os.path.join(cwd, f"log-{variables.get('NODE_RANK', 0)}"), os.path.join(cwd, "out")
        environ = environment(PYTHON=interpreter(payload(bundle)["target"]), **variables)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(bundle, "launch.sh")], cwd=cwd, env=environ, stdout=log, stderr=subprocess.STDOUT
            )

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + 200
        while not true():
            assert time.monotonic() < end, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    def until_it_trains(self) -> None:
        self.until(lambda: len(events(self.out)) > 1)

    @property
    def said(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as handle:
            return handle.read()

    @property
    def ranks(self) -> list[int]:
        """The processes of the run, by rank: the launcher's children."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as handle:
            return [int(word) for word in handle.read().split()]

    def stopped(self) -> None:
        """Has saved, and asks to be started again."""
        assert self.process.wait(120) == 75, self.said
        assert "Traceback" not in self.said, self.said
        assert self.said.count("launch.sh: stopped as asked") == 1, self.said


def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def send(pid: int, *numbers: int) -> None:
    for number in numbers:
        os.kill(pid, number)
        time.sleep(0.1)


WAYS = {
    "one process": (text(world=1, **LONG), "launcher", [signal.SIGTERM]),  # type: ignore[arg-type]
    "accelerate": (text(strategy="zero2", **LONG), "rank", [signal.SIGUSR1]),  # type: ignore[arg-type]
    "torchrun": (text(TORCHRUN, **LONG), "launcher", [signal.SIGUSR1, signal.SIGTERM]),  # type: ignore[arg-type]
    "accelerate 1.4": (text(target=OLD, **LONG), "launcher", [signal.SIGTERM]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("way", WAYS)
def test_whoever_is_asked_the_run_saves_and_exits_75(runs: Callable[[str], Runs], tmp_path: object, way: str) -> None:
    source, who, numbers = WAYS[way]
    bundle = runs(NEW).compiled(source, way.replace(" ", "-"))
    run = Launched(bundle, str(tmp_path), **({"MASTER_PORT": port()} if way == "accelerate 1.4" else {}))
    run.until_it_trains()
    ranks = run.ranks
    send(run.process.pid if who == "launcher" else ranks[-1], *numbers)
    run.stopped()
    saved = checkpoints(run.out)
    assert len(saved) == 1
    assert f"[run] stopped as asked: {saved[0]} is whole; the same command goes on from it" in run.said
    assert not any(map(alive, ranks))
    here = runs(payload(bundle)["target"])
    again = here.start(bundle, str(tmp_path))
    again.until_step(int(saved[0].split("-")[1]) + 1)
    again.kill()
    assert f"going on from {saved[0]}" in again.text


def test_before_training_there_is_nothing_to_wait_for(runs: Callable[[str], Runs], tmp_path: object) -> None:
    bundle = runs(NEW).compiled(WAYS["torchrun"][0], "torchrun")
    for number, begun in ((signal.SIGTERM, lambda run: run.ranks), (signal.SIGUSR1, lambda run: "passed" in run.said)):
        run = Launched(bundle, str(tmp_path))
        run.until(lambda begun=begun, run=run: bool(begun(run)))  # type: ignore[misc]
        time.sleep(0.1)  # its interpreter has begun
        send(run.process.pid, number)
        run.stopped()
        assert checkpoints(run.out) == []


def test_ranks_end_with_a_launcher_that_is_killed(runs: Callable[[str], Runs], tmp_path: object) -> None:
    here = runs(NEW)
    bundle = here.compiled(WAYS["torchrun"][0], "torchrun")
    run = Launched(bundle, str(tmp_path))
    run.until_it_trains()
    ranks = run.ranks
    assert len(ranks) == 2
    run.process.kill()
    run.process.wait()
    end = time.monotonic() + 10
    while any(map(alive, ranks)):
        assert time.monotonic() < end, "a rank outlives its launcher"
        time.sleep(0.05)
    again = here.start(bundle, str(tmp_path))  # nobody holds the folder
    again.until_step(1)
    again.kill()


def test_a_rank_that_is_killed_ends_the_run(runs: Callable[[str], Runs], tmp_path: object) -> None:
    bundle = runs(NEW).compiled(WAYS["accelerate"][0], "accelerate")
    run = Launched(bundle, str(tmp_path))
    run.until_it_trains()
    ranks = run.ranks
    os.kill(ranks[1], signal.SIGKILL)
    assert run.process.wait(60) == 137
    assert "was ended by SIGKILL" in run.said
    assert not any(map(alive, ranks))


def test_the_second_node_is_asked(runs: Callable[[str], Runs], tmp_path: object) -> None:
    source = text("nodes 2", world=1, strategy="ddp", **LONG)  # type: ignore[arg-type]
    bundle = runs(NEW).compiled(source, "nodes")
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}
    nodes = [Launched(bundle, str(tmp_path), NODE_RANK=str(rank), **where) for rank in range(2)]
    try:
        nodes[0].until_it_trains()
        send(nodes[1].process.pid, signal.SIGUSR1)
        for node in nodes:
            node.stopped()
        assert len(checkpoints(nodes[0].out)) == 1
    finally:
        for node in nodes:
            node.process.kill()
