"""Runs that things happen to: a bundle, its folder, its processes, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from emitted import NEW, compiled
from stacks import environment, payload
from tiny_runs import spec

HERE = os.path.dirname(os.path.abspath(__file__))


def text(
    *more: str, steps: int = 20, save: str = "every=3 keep=2", world: int = 2, strategy: str = "ddp", target: str = NEW,
    every: int | str = 2,
) -> str:  # fmt: skip
    """A run of 64 rows or fewer, 8 a step in two accumulations: an epoch ends every 8 steps, the run within one."""
    hardware = "cpu" if world == 1 else f"{world} x cpu"
    whole = spec(*more, hardware=hardware, strategy=strategy, length=f"{steps} steps", target=target,
                 save=f'save "out" {save}')  # fmt: skip
    return whole.replace("every=1)", f"every={every})")


class Going:
    """A run that was started. ``pids`` are its processes, by rank."""

    def __init__(self, runs: Runs, pids: list[int], cwd: str, said: str) -> None:
        self.runs, self.pids, self.cwd, self.said = runs, pids, cwd, said
        self.out = os.path.join(cwd, "out")

    def until(self, true: Callable[[], bool], seconds: float = 120) -> None:
        """Waits for something to be true, and no longer than the run lasts."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"nothing happened in {seconds} s: {self.text}"
            assert all(alive(pid) for pid in self.pids), f"the run ended before: {self.text}"
            time.sleep(0.01)

    def until_step(self, step: int) -> None:
        """Waits until this start of the run tells of this step, or of a later one."""
        self.until(lambda: self.reached() >= step)

    def reached(self) -> int:
        """The last step that this start has told of."""
        return max((int(one) for one in re.findall(r"^step (\d+)/", self.text, re.MULTILINE)), default=0)

    def send(self, number: int, *ranks: int) -> None:
        """A signal to some processes, to all without `ranks`."""
        for rank, pid in enumerate(self.pids):
            if (not ranks or rank in ranks) and alive(pid):
                os.kill(pid, number)

    def wait(self, seconds: float = 120) -> list[int | None]:
        """The exit statuses, by rank."""
        return list(self.runs.ask({"wait": self.pids, "seconds": seconds})["status"])

    def kill(self) -> None:
        """As a machine that goes away."""
        self.send(signal.SIGKILL)
        self.wait()

    @property
    def text(self) -> str:
        """What all processes have said, stdout first."""
        out = ""
        for name in ("out", "err"):
            for rank in range(len(self.pids)):
                with open(f"{self.said}.{name}.{rank}", encoding="utf-8", errors="replace") as handle:
                    out += handle.read()
        return out


class Runs:
    """Starts bundles as forks of a warm interpreter."""

    def __init__(self, python: str, place: str) -> None:
        self.place, self.count = place, 0
        self.server = subprocess.Popen(
            [python, os.path.join(HERE, "fault_server.py")], env=environment(), text=True, stdin=subprocess.PIPE,
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
        """The bundle of a text, beside the model."""
        return compiled(source, self.place, os.path.join(self.place, f"{name}.bundle"), f"{name}.xp")

    def start(self, bundle: str, cwd: str, **environ: str) -> Going:
        """Every process of the run, as the launcher starts them after its preflight."""
        self.count += 1
        os.makedirs(cwd, exist_ok=True)
        said = os.path.join(self.place, f"said-{os.getpid()}-{self.count}")
        job = {"bundle": bundle, "cwd": cwd, "words": [], "world": payload(bundle)["run"]["world_size"],
               "program": None, "said": said, "environ": {"XPC_PREFLIGHT": "passed", **environ}}  # fmt: skip
        pids = self.ask({"start": job})["pids"]
        going = Going(self, pids, cwd, said)
        while not all(os.path.exists(f"{said}.err.{rank}") for rank in range(len(pids))):
            time.sleep(0.001)
        return going

    def finish(self, bundle: str, cwd: str, **environ: str) -> Going:
        """A run to its end."""
        going = self.start(bundle, cwd, **environ)
        status = going.wait()
        assert not any(status), f"{status}: {going.text}"
        return going

    def alone(self, bundle: str) -> dict[str, Any]:
        """The result of a run that nothing happens to; it is run once."""
        cwd = bundle + ".alone"
        if not os.path.exists(cwd):
            self.finish(bundle, cwd)
        return result(os.path.join(cwd, "out"))

    def undisturbed(self, bundle: str, cwd: str) -> tuple[float, dict[str, Any]]:
        """Seconds and result of a run that nothing happens to, with its rows tokenized by one before."""
        self.finish(bundle, cwd)
        shutil.rmtree(os.path.join(cwd, "out"))
        began = time.monotonic()
        self.finish(bundle, cwd)
        return time.monotonic() - began, result(os.path.join(cwd, "out"))

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(30)


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def events(out: str) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl."""
    try:
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as handle:
            return [json.loads(line) for line in handle if line.endswith("\n")]
    except OSError:
        return []


def checkpoints(out: str) -> list[str]:
    """The names of checkpoints, oldest first."""
    found = [name for name in os.listdir(out) if name.startswith("checkpoint-")] if os.path.isdir(out) else []
    return sorted(found, key=lambda name: int(name.split("-")[1]))


def result(out: str) -> dict[str, Any]:
    """What must not depend on what happened to the run: the weights to the last bit, every event, and the counts."""
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as handle:
        summary = json.load(handle)
    kept = ("steps", "epochs", "sequences", "tokens", "first_loss", "last_loss")
    times = ("seconds", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
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
    """What of two results is not the same, an event at a time."""
    said = [f"{key}: {found[key]} is not {expected[key]}" for key in expected if found[key] != expected[key]]
    pairs = zip(found["events"], expected["events"], strict=False)
    told = [f"{one}\n  is not\n{other}" for one, other in pairs if one != other]
    return (
        [one for one in said if not one.startswith("events")]
        + told
        + (
            []
            if len(found["events"]) == len(expected["events"])
            else [
                f"steps {[one['step'] for one in found['events']]}, not {[one['step'] for one in expected['events']]}"
            ]
        )
    )
