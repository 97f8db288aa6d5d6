"""`launch.sh --rehearse` trains two steps, and tries a save and a resume. A run after a rehearsal equals a run without
a rehearsal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from emitted import compiled
from forks import Forks
from jobs import steps_of
from patience import HUNG
from stacks import environment, launch
from tiny_runs import spec

pytestmark = pytest.mark.slow

MORE = ("track tensorboard(every=1)", "eval(every=3)", "data(holdout=25%)")


def metrics(cwd: str) -> list[tuple[int, float]]:
    return [(one["step"], one["loss"]) for one in steps_of(cwd)]


@pytest.fixture(scope="module")
def bundle(location: str) -> str:
    text = spec(*MORE, hardware="2 x cpu", strategy="zero2", length="6 steps", save='save "out" every=2 keep=1')
    return compiled(text.replace("track none(every=1)\n", ""), location, f"{location}/rehearsed.bundle")


def test_a_rehearsed_run_is_the_run(warm: Forks, bundle: str, tmp_path: Path) -> None:
    done = {}
    for name, words in (("plain", ()), ("rehearsed", ("--rehearse",))):
        cwd = tmp_path / name
        cwd.mkdir()
        run = launch(bundle, str(cwd), *words, PYTHON=warm.python)
        assert run.done.returncode == 0, run.output
        assert os.listdir(cwd) == ["out"]
        done[name] = (
            metrics(str(cwd)),
            sorted(os.listdir(cwd / "out")),
            (cwd / "out" / "model.safetensors").read_bytes(),
        )
        if words:
            assert run.done.stdout.count("resuming from checkpoint-") == 1
            printed = [line for line in run.done.stderr.splitlines() if "rehears" in line]
            assert [" ".join(one.split()[1:3]) for one in printed] == ["rehearsing two", "rehearsing a", "rehearsed in"]
    assert done["plain"] == done["rehearsed"]


def test_a_run_that_has_begun_is_not_rehearsed_again(warm: Forks, bundle: str, tmp_path: Path) -> None:
    run = launch(bundle, str(tmp_path), PYTHON=warm.python)
    assert run.done.returncode == 0, run.output
    again = launch(bundle, str(tmp_path), PYTHON=warm.python, XPC_REHEARSE="1")
    assert again.done.returncode == 0
    assert "does not rehearse it" in again.output
    assert "rehearsing" not in again.output


def test_a_failed_rehearsal_starts_no_run(warm: Forks, bundle: str, tmp_path: Path) -> None:
    (tmp_path / "out.rehearsal").mkdir()
    (tmp_path / "out.rehearsal" / "mine").write_text("")
    run = launch(bundle, str(tmp_path), "--rehearse", PYTHON=warm.python)
    assert run.done.returncode == 1
    assert "is not the folder of a rehearsal; move it away" in run.output
    assert os.listdir(tmp_path) == ["out.rehearsal"]


def test_a_stop_request_ends_a_rehearsal(warm: Forks, bundle: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [os.path.join(bundle, "launch.sh"), "--rehearse"], cwd=tmp_path, env=environment(PYTHON=warm.python),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while not (tmp_path / "out.rehearsal" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=HUNG)[0]
    assert process.returncode == 75, output
    assert not (tmp_path / "out").exists()


def test_a_rehearsal_copies_no_file_but_three(bundle: str, tmp_path: Path) -> None:
    from runpy import run_path

    plan = json.loads(Path(bundle, "trainer_args.json").read_text())
    copied = Path(run_path(os.path.join(bundle, "rehearse.py"))["_copied"](bundle, str(tmp_path), plan))
    assert {one.name for one in copied.iterdir() if not one.is_symlink()} == {
        "launch.sh", "trainer_args.json", "bundle.toml",
    }  # fmt: skip
    changed = json.loads((copied / "trainer_args.json").read_text())
    assert changed["arguments"]["report_to"] == ["none"]
    assert {name for name in plan if plan[name] != changed[name]} <= {"arguments", "run"}
