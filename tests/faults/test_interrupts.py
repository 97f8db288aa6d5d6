"""Ctrl-C in a real terminal sends SIGINT to every process of the foreground group. The run saves a checkpoint and
stops.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import HANGS, Runs, alive, checkpoints, children, events, signalled, text, trainers
from interpreters import interpreter
from terminal import CTRL_C, Terminal
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow
LONG = {"steps": 2000, "every": 1, "save": "every=never"}


def interrupt(run: Terminal) -> None:
    """Type Ctrl-C, and also send SIGINT to the training processes: they are forks of a warm interpreter with a session
    of their own, so the terminal's Ctrl-C does not reach them.
    """
    ranks = trainers(run.cwd)
    run.type(CTRL_C)
    for pid in ranks:
        signalled(pid, signal.SIGINT)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


LAUNCHES = {
    "one-process": text(world=1, **LONG),  # type: ignore[arg-type]
    "accelerate": text(strategy="zero2", **LONG),  # type: ignore[arg-type]
    "torchrun": text("launch local(launcher=torchrun)", **LONG),  # type: ignore[arg-type]
}


WAYS = [*(("warm", kind) for kind in LAUNCHES), *(("cold", kind) for kind in LAUNCHES)]
"""How a run starts ("warm": as a fork of a warm interpreter, "cold": as a new program), and its kind of launch. A warm
run gets SIGINT from the test, and a cold run from the terminal.
"""


@pytest.mark.parametrize(("start", "kind"), nightly_but(WAYS, lambda one: one == ("warm", "accelerate")))
def test_first_ctrl_c_saves_and_the_second_ends_at_once(
    runs: Callable[[str], Runs], tmp_path: Path, start: str, kind: str
) -> None:
    here = runs(DEFAULT)
    launch = [os.path.join(here.compiled(LAUNCHES[kind], f"interrupt-{kind}"), "launch.sh")]
    run = Terminal(launch, str(tmp_path), PYTHON=here.warm if start == "warm" else here.python)
    run.until(lambda: len(events(run.out)) > 1)
    interrupt(run) if start == "warm" else run.type(CTRL_C)
    assert run.wait() == 75, run.output
    assert run.output.count("launch.sh: stopping; a run that has begun to train saves first") == 1, run.output
    (saved,) = checkpoints(run.out)
    assert "\n\r\n" not in run.output[run.output.index("launch.sh: stopping") :], "an empty line"
    assert f"launch.sh: stopped as asked: the same command resumes from {saved} (status 75)" in run.output

    again = Terminal(launch, str(tmp_path), PYTHON=here.warm)
    again.until(lambda: "resuming from" in again.output and len(re.findall(r"step \d+/", again.output)) > 1)
    processes = trainers(str(tmp_path))
    assert len(processes) == int(kind != "one-process") + 1
    # The processes are paused (SIGSTOP), so that they cannot save before the second Ctrl-C.
    for one in processes:
        os.kill(one, signal.SIGSTOP)
    again.type(CTRL_C)
    again.until(lambda: "launch.sh: stopping" in again.output)
    again.type(CTRL_C)
    assert again.wait() == 130, again.output
    assert f"launch.sh: quit at once; newest checkpoint: {saved}" in again.output
    until(lambda: not any(map(alive, processes)))


@pytest.mark.parametrize("kind", ["one-process", "accelerate"])
@pytest.mark.parametrize("moment", ["before the processes", "while they start"])
def test_ctrl_c_before_the_first_step_ends_at_once(
    runs: Callable[[str], Runs], tmp_path: Path, kind: str, moment: str
) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(LAUNCHES[kind], f"interrupt-{kind}")
    # To press Ctrl-C before any training process exists, the test needs a new interpreter: a warm one would fork the
    # launcher, and would handle the signal before the launcher does.
    python = interpreter(DEFAULT) if moment == "before the processes" else here.python
    run = Terminal([os.path.join(bundle, "launch.sh")], str(tmp_path), PYTHON=python)
    run.until(lambda: hears(run.pid))
    if moment == "while they start":
        run.until(lambda: bool(children(run.pid)))
    run.type(CTRL_C)
    assert run.wait() == 75, run.output
    assert "there is no checkpoint, so the same command starts from the beginning" in run.output
    assert "SIG" not in run.output
    assert not checkpoints(run.out)


HELPER = """
import os, subprocess, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "torch.distributed.elastic.multiprocessing" and "launcher.py" in sys.argv[0]:
            sys.meta_path.remove(self)
            subprocess.run(["sh", "-c", "trap '' INT TERM; touch helper; sleep 3"])
sys.meta_path.insert(0, Finder())
"""


def test_ctrl_c_counts_while_a_library_runs_a_program_of_its_own(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    """A library has started a helper program, which is a child of the launcher but not a training process. Ctrl-C must
    nevertheless stop the run.
    """
    here = runs(DEFAULT)
    bundle = here.compiled(LAUNCHES["accelerate"], "interrupt-accelerate")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HELPER)
    python = interpreter(DEFAULT)
    run = Terminal([os.path.join(bundle, "launch.sh")], str(tmp_path), PYTHON=python, PYTHONPATH=str(tmp_path / "site"))
    run.until((tmp_path / "helper").exists)
    run.type(CTRL_C)
    assert run.wait() == 75, run.output
    assert "there is no checkpoint, so the same command starts from the beginning" in run.output


def hears(pid: int) -> bool:
    """Whether a process runs launcher.py and has a handler for SIGTERM. launcher.py sets this handler last.

    A forked process inherits its parent's handler for SIGTERM even before it runs launcher.py. Such a process does not
    count.
    """
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return (
        b"launcher.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and caught is not None
        and bool(int(caught[1], 16) & 1 << signal.SIGTERM - 1)
    )


def test_a_closed_terminal_is_a_stop_request(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(LAUNCHES["one-process"], "interrupt-one-process")
    run = Terminal([os.path.join(bundle, "launch.sh")], str(tmp_path), PYTHON=here.python)
    run.until(lambda: len(events(run.out)) > 1)
    run.close()
    assert run.wait() == 75, run.output
    assert len(checkpoints(run.out)) == 1


def test_ctrl_c_saves_though_it_ends_the_tee_that_prints(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(LAUNCHES["one-process"], "interrupt-one-process")
    script = f"{shlex.quote(os.path.join(bundle, 'launch.sh'))} 2>&1 | tee log; exit ${{PIPESTATUS[0]}}"
    run = Terminal(["bash", "-c", f"trap : INT; {script}"], str(tmp_path), PYTHON=here.warm)
    run.until(lambda: len(events(run.out)) > 1)
    interrupt(run)
    assert run.wait() == 75, run.output
    assert len(checkpoints(run.out)) == 1


def test_ctrl_c_stops_a_sweep(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    here = runs(DEFAULT)
    source = LAUNCHES["one-process"] + "\nsweep {\n  seed = [1, 2]\n}\n"
    bundle = here.compiled(source, "interrupt-sweep")
    run = Terminal([os.path.join(bundle, "launch.sh"), "--all"], str(tmp_path), PYTHON=here.warm)
    run.until(lambda: "step 2/" in run.output)
    interrupt(run)
    assert run.wait() == 75, run.output
    assert run.output.count("launch.sh: member ") == 1, run.output
    assert "--all resumes from there" in run.output


SLOW_SAVE = """
import time
import safetensors.torch as one
save_file = one.save_file
def slow(*args, **kwargs):
    time.sleep(95)
    save_file(*args, **kwargs)
one.save_file = slow
"""


@pytest.mark.nightly
def test_a_save_longer_than_the_grace_of_torchs_agent(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    """On a signal, torchrun's agent gives its processes 30 seconds before it kills them. The run finishes its save even
    if the save takes longer.
    """
    here = runs(DEFAULT)
    bundle = here.compiled(LAUNCHES["torchrun"], "interrupt-torchrun")
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_SAVE)
    python = subprocess.run(
        [here.python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    run = Terminal([os.path.join(bundle, "launch.sh")], str(tmp_path), PYTHON=python, PYTHONPATH=str(tmp_path / "slow"))
    run.until(lambda: len(events(run.out)) > 1)
    run.type(CTRL_C)
    assert run.wait() == 75, run.output
    assert len(checkpoints(run.out)) == 1
