"""Runs that tests disturb: a bundle, its folder, its processes, and the files that it leaves."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from glob import glob
from hashlib import sha256
from typing import Any

from emitted import compiled
from forks import of_python
from patience import HUNG
from ports import free_port
from stacks import environment, payload
from tiny_runs import spec
from whole_lines import events

from xpc.compiler.stacks import DEFAULT
from xpc.runtime.core import checkpoint_integrity

HERE = os.path.dirname(os.path.abspath(__file__))
HANGS = HUNG
"""A run that takes more seconds than this counts as hanging. The number is so large that no test fails on a busy
machine.
"""
KEPT = 2
"""The value of `keep` in every spec of this file that sets it."""
GRPO = 'method grpo(rewards="rewards.py:even", generations=4, max_completion=12, beta=0.04)'


def text(
    *more: str, steps: int = 14, save: str = "every=3 keep=2", world: int = 2, strategy: str = "ddp",
    target: str = DEFAULT, every: int | str = 2,
) -> str:  # fmt: skip
    """A spec for at most 64 rows. A step has 8 rows in two micro-batches, so an epoch has up to 8 steps. The run ends
    in the middle of an epoch.
    """
    hardware = "cpu" if world == 1 else f"{world} x cpu"
    whole = spec(*more, hardware=hardware, strategy=strategy, length=f"{steps} steps", target=target,
                 save=f'save "out" {save}')  # fmt: skip
    return whole.replace("every=1)", f"every={every})")


class Going:
    """A run that ``begin`` has started. ``pids`` are the processes for which the test waits: all ranks, or the launcher
    alone.

    The checkpoints in the output folder are listed before the run starts, because the run may soon delete old
    checkpoints.
    """

    def __init__(
        self, runs: Runs, begin: Callable[[], list[int]], cwd: str, output: str, launched: bool = False
    ) -> None:
        self.runs, self.cwd, self.said, self.launched = runs, cwd, output, launched
        self.out = os.path.join(cwd, "out")
        self.children: list[int] = []
        self.before, self.sound = checkpoints(self.out), sound(self.out)
        self.pids = begin()
        self.damaged: set[str] = set()
        """Checkpoints that the test has damaged."""

    def until(self, true: Callable[[], bool], seconds: float = HANGS) -> None:
        """Wait until a condition is true, or the run ends."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"the event did not happen within {seconds} s: {self.text}"
            assert all(alive(pid) for pid in self.pids), f"the run ended before the event: {self.text}"
            time.sleep(0.01)

    def until_step(self, step: int) -> None:
        """Wait until this start of the run has logged the step, or a later one."""
        self.until(lambda: self.reached() >= step)

    def reached(self) -> int:
        """The last step in the log since the run was started this time."""
        return max((int(one) for one in re.findall(r"^step (\d+)/", self.text, re.MULTILINE)), default=0)

    @property
    def ranks(self) -> list[int]:
        """The training processes by rank. For a launched run, the processes that its launcher has started."""
        if self.launched and alive(self.pids[0]):
            self.children = children(self.pids[0]) or self.children
        return self.children if self.launched else self.pids

    @property
    def moment(self) -> str:
        """The phase that the run is in: `starting`, `training` or `saving`. Tests count in which phases they disturbed
        a run.
        """
        if os.path.isdir(checkpoint_integrity.staging(self.out)):
            return "saving"
        return "training" if events(self.out) or checkpoints(self.out) else "starting"

    @property
    def done(self) -> bool:
        """Whether the run has made all its steps. A process can also end earlier, for example after a stop request."""
        return os.path.exists(os.path.join(self.out, "summary.json"))

    @property
    def lives(self) -> bool:
        """Whether none of the run's processes has ended."""
        return all(map(alive, self.pids))

    def send(self, number: int, *ranks: int) -> None:
        """Send a signal to the training processes with these `ranks`. Without `ranks`, send it first to the launcher,
        then to all training processes.
        """
        pids = self.ranks
        if self.launched and not ranks:
            pids = [*self.pids, *pids]
        for rank, pid in enumerate(pids):
            if not ranks or rank in ranks:
                signalled(pid, number)

    def wait(self, seconds: float = HANGS) -> list[int | None]:
        """Wait until the processes have ended. Return the exit status of each rank, or of the launcher if the run has
        one. Fail if a process outlives its launcher.
        """
        status = list(self.runs.ask({"wait": self.pids, "seconds": seconds})["status"])
        end = time.monotonic() + HANGS
        while self.launched and any(map(alive, self.children)):
            assert time.monotonic() < end, f"a process is still running after its launcher has ended: {self.text}"
            time.sleep(0.01)
        return status

    def kill(self) -> None:
        """Kill every process at once, as a failing machine does."""
        self.send(signal.SIGKILL)
        self.wait()

    @property
    def text(self) -> str:
        """The output of all processes of the run: first the standard output, then the standard error."""
        out = ""
        for name in ("out", "err"):
            for path in sorted(glob(f"{self.said}.{name}.*")):
                with open(path, encoding="utf-8", errors="replace") as handle:
                    out += handle.read()
        return out

    def check(self) -> None:
        """Check the state after a disturbance: there is no traceback, every checkpoint is complete, and no checkpoint
        is missing. There must be at least as many checkpoints as before the start, or KEPT if there were more.

        A kill between a save and the deletion of older checkpoints may leave one checkpoint more than `keep` states.
        """
        assert "Traceback" not in self.text, self.text
        found = sound(self.out)
        broken = set(checkpoints(self.out)) - set(found) - self.damaged - (set(self.before) - set(self.sound))
        assert not broken, f"{broken}: {self.text}"
        least = min(len(self.sound), KEPT)
        assert len(set(found) | self.damaged) >= least, (
            f"of the complete checkpoints {self.sound}, only {found} are left: {self.text}"
        )


class Runs:
    """Starts bundles as forks of a warm interpreter, and waits for their ends."""

    def __init__(self, python: str, location: str) -> None:
        self.python, self.location, self.count = python, location, 0
        self.lasts: dict[str, float] = {}
        self.sources: dict[str, str] = {}
        self.warm = of_python(python).python
        """A program that replaces `python`: its processes are forks of a warm interpreter (forks.Forks)."""
        self.server = subprocess.Popen(
            [self.warm, os.path.join(HERE, "fault_server.py")], env=environment(), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(question) + "\n")
        self.server.stdin.flush()
        answer = self.server.stdout.readline()
        assert answer, "the warm interpreter has died"
        return dict(json.loads(answer))

    def compiled(self, source: str, name: str) -> str:
        """Compile a spec in the folder of the model, and return the path of the bundle. Each spec needs its own
        name.
        """
        assert self.sources.setdefault(name, source) == source, f"another spec has the name {name}"
        return compiled(source, self.location, os.path.join(self.location, f"{name}.bundle"), f"{name}.xp")

    def program(self, path: str, *words: str) -> None:
        """Run a program outside of any bundle, wait for its end, and check that its status is 0."""
        status = self._fork(self.location, 1, path, *words).wait()
        assert status == [0], status

    def start(self, bundle: str, cwd: str, program: str | None = None, **environ: str) -> Going:
        """Start every process of the run, as the launcher does after its preflight. If ``program`` is given, each
        process runs this program instead of the trainer.
        """
        words = [os.path.join(bundle, "trainer", "main.py")] if program else []
        main = os.path.join(HERE, program) if program else os.path.join(bundle, "trainer", "main.py")
        run = payload(bundle)["run"]
        # A DeepSpeed run of one process needs a process group, so the launcher sets these variables for it; the test
        # does the same.
        if (run["distributed_type"], run["world_size"]) == ("DEEPSPEED", 1):
            names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
            environ = {**names, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environ}
        return self._fork(cwd, run["world_size"], main, *words, **{"XPC_PREFLIGHT": "passed", **environ})

    def launch(self, bundle: str, cwd: str, **environ: str) -> Going:
        """Start a bundle's launcher in the warm interpreter, as launch.sh does after its preflight."""
        environ = {"XPC_PREFLIGHT": "passed", "OMP_NUM_THREADS": "1", **environ}
        script = [os.path.join(bundle, "launch.sh"), "--dry-run"]
        printed = subprocess.run(script, env=environment(PYTHON=self.python, **environ), check=True, text=True,
                                 capture_output=True).stdout  # fmt: skip
        return self._fork(cwd, 0, *shlex.split(printed)[1:], **environ)

    def _fork(self, cwd: str, world: int, program: str, *words: str, **environ: str) -> Going:
        """Fork a process for each rank. If `world` is 0, fork a single process, which runs the launcher."""
        self.count += 1
        os.makedirs(cwd, exist_ok=True)
        output = os.path.join(self.location, f"said-{os.getpid()}-{self.count}")
        job = {"cwd": cwd, "words": words, "world": world or 1, "program": program, "said": output,
               "environ": {"XPC_SAID": output, **environ}}  # fmt: skip
        going = Going(self, lambda: list(self.ask({"start": job})["pids"]), cwd, output, not world)
        while not all(os.path.exists(f"{output}.err.{rank}") for rank in range(len(going.pids))):
            time.sleep(0.001)
        return going

    def finish(self, bundle: str, cwd: str, **environ: str) -> Going:
        """Start a run and wait until it has ended."""
        going = self.start(bundle, cwd, **environ)
        status = going.wait()
        assert not any(status), f"{status}: {going.text}"
        return going

    def alone(self, bundle: str) -> dict[str, Any]:
        """The result of the same run without a disturbance. It is computed once per bundle."""
        cwd = bundle + ".alone"
        if not os.path.exists(cwd):
            began = time.monotonic()
            self.finish(bundle, cwd)
            self.lasts[bundle] = time.monotonic() - began
        return result(os.path.join(cwd, "out"))

    def disturbed(
        self, bundle: str, folder: str, wanted: int, start: Callable[[str, str], Going] | None = None
    ) -> Iterator[tuple[Going, Counter[str]]]:
        """Start runs until the test has made `wanted` disturbances. Each yield is a pair: a started run, and a counter
        that the test increases with each disturbance.

        After each yield, the function waits until all processes have ended, and starts the run again by the same
        command. When a run finishes, its result must equal the result of an undisturbed run: bit-identical weights,
        each event once, the same steps and samples.
        """
        expected, hit, starts, number = self.alone(bundle), Counter[str](), 0, 0
        while hit.total() < wanted:
            number += 1
            cwd = os.path.join(folder, f"run-{number}")
            out = os.path.join(cwd, "out")
            while not os.path.exists(os.path.join(out, "summary.json")):
                starts += 1
                assert starts < 20 * wanted, "the run makes no progress"
                if hit.total() < wanted:
                    going = (start or self.start)(bundle, cwd)
                    yield going, hit
                    going.check()
                else:
                    self.finish(bundle, cwd).check()
            found = differences(result(out), expected)
            assert not found, f"run {number}, after {dict(hit)}:\n" + "\n".join(found)
        print(f"{os.path.basename(bundle)}: {hit.total()} in {number} runs: {dict(hit)}")

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(600)


def alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The ids of a process's child processes."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as handle:
            return [int(word) for word in handle.read().split()]
    except OSError:
        return []


def trainers(cwd: str) -> list[int]:
    """The sorted ids of the processes that run a bundle's trainer in this folder; these start in the order of their
    ranks. Such a process can be a client of a warm interpreter: then it passes signals on to its fork, and is not a
    child of the launcher.
    """
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as handle:
            words = handle.read().split(b"\0")
            main = next((os.path.basename(one) for one in words if one.endswith(b".py")), b"")
            if main == b"main.py" and os.path.samefile(f"/proc/{pid}/cwd", cwd):
                found.append(pid)
    return sorted(found)


def signalled(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        if alive(pid):
            os.kill(pid, number)


def checkpoints(out: str) -> list[str]:
    """The names of the checkpoints in an output folder, oldest first."""
    found = [name for name in os.listdir(out) if name.startswith("checkpoint-")] if os.path.isdir(out) else []
    return sorted(found, key=lambda name: int(name.split("-")[1]))


def sound(out: str) -> list[str]:
    """The names of checkpoints whose files have the sizes and digests that the run recorded when it wrote them."""
    paths = [os.path.join(out, name) for name in checkpoints(out)]
    whole_ones = [
        one
        for one in paths
        if os.path.exists(os.path.join(one, checkpoint_integrity.RECORD)) and not checkpoint_integrity.broken(one, True)
    ]
    return [os.path.basename(one) for one in whole_ones]


def result(out: str) -> dict[str, Any]:
    """What an interruption must not change in a run's result: the weights (bit for bit), every logged event, and the
    counts.
    """
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as handle:
        summary = json.load(handle)
    kept = ("steps", "epochs", "sequences", "tokens", "first_loss", "last_loss")
    times = ("seconds", "step_time", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
    names = [name for name in os.listdir(out) if name.endswith(".safetensors")]
    digests = {}
    for name in names:
        with open(os.path.join(out, name), "rb") as handle:
            digests[name] = sha256(handle.read()).hexdigest()
    return {
        "weights": digests,
        "events": [{key: value for key, value in event.items() if key not in times} for event in events(out)],
        **{key: summary[key] for key in kept},
    }


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Describe how two results differ. Each event that differs has its own line."""
    output = [f"{key}: {found[key]} is not {expected[key]}" for key in expected if found[key] != expected[key]]
    pairs = zip(found["events"], expected["events"], strict=False)
    reported = [f"{one}\n  is not\n{other}" for one, other in pairs if one != other]
    return (
        [one for one in output if not one.startswith("events")]
        + reported
        + (
            []
            if len(found["events"]) == len(expected["events"])
            else [
                f"steps {[one['step'] for one in found['events']]}, not {[one['step'] for one in expected['events']]}"
            ]
        )
    )
