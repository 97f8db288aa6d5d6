"""Ctrl-C in a real terminal ends a run properly while it tokenizes, evaluates or saves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import Runs, alive, checkpoints, children, events, sound, text
from stacks import payload
from terminal import CTRL_C, Terminal
from test_interrupts import interrupt, until
from tiers import nightly_but

from xpc.compiler.report.run_record import read_run
from xpc.compiler.stacks import DEFAULT
from xpc.runtime.core import checkpoint_integrity

pytestmark = pytest.mark.slow
KINDS = ("one-process", "accelerate")


def descendants(pid: int) -> set[int]:
    return {pid}.union(*map(descendants, children(pid)))


def test_ctrl_c_while_tokenizing_ends_all_workers(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    """If Ctrl-C ends a run while it tokenizes, the worker processes of its `datasets.map` also end."""
    here = runs(DEFAULT)
    rows = Path(here.location, "messages.jsonl").read_text()
    Path(here.location, "many.jsonl").write_text(rows * 300)
    source = text("data(workers=2)", world=1, steps=3).replace('"messages.jsonl"', '"many.jsonl"')
    run = Terminal([os.path.join(here.compiled(source, "interrupt-tokenizing"), "launch.sh")], str(tmp_path),
                   PYTHON=here.python, HF_DATASETS_CACHE=str(tmp_path / "cache"))  # fmt: skip
    run.until(lambda: "rows for parts that the chat template drops" in run.output and len(descendants(run.pid)) > 3)
    started = descendants(run.pid)
    run.type(CTRL_C)
    assert run.wait() == 75, run.output
    assert "there is no checkpoint, so the same command starts from the beginning" in run.output
    until(lambda: not any(map(alive, started)))
    shutil.rmtree(tmp_path / "cache")


@pytest.mark.parametrize("kind", nightly_but(KINDS, lambda kind: kind == "accelerate"))
def test_ctrl_c_while_saving_finishes_the_save(runs: Callable[[str], Runs], tmp_path: Path, kind: str) -> None:
    """The run finishes the save in progress. Then it trains up to the step at which all processes agree to stop, and
    saves there.
    """
    here = runs(DEFAULT)
    world = 1 if kind == "one-process" else 2
    source = text(world=world, strategy="ddp" if world == 1 else "zero2", steps=2000, save="every=1 keep=2")
    run = Terminal([os.path.join(here.compiled(source, f"interrupt-save-{kind}"), "launch.sh")], str(tmp_path),
                   PYTHON=here.warm)  # fmt: skip
    staging = checkpoint_integrity.staging(run.out)
    run.until(lambda: len(checkpoints(run.out)) > 0 and os.path.exists(staging))
    interrupt(run)
    assert run.wait() == 75, run.output
    assert checkpoints(run.out) == sound(run.out)
    assert f"the same command resumes from {checkpoints(run.out)[-1]} (status 75)" in run.output
    assert not os.path.exists(staging)
    record = read_run(run.out)
    assert record is not None
    assert record.status == "stopped on request"


@pytest.mark.parametrize("kind", nightly_but(KINDS, lambda kind: kind == "accelerate"))
def test_the_final_save_is_finished(runs: Callable[[str], Runs], tmp_path: Path, kind: str) -> None:
    """Ctrl-C during the final save: no step is left to train, so the run finishes the save and ends with status 0, as
    without Ctrl-C.
    """
    here = runs(DEFAULT)
    world = 1 if kind == "one-process" else 2
    source = text(world=world, strategy="ddp" if world == 1 else "zero2", steps=2, save="every=never")
    bundle = here.compiled(source, f"interrupt-final-{kind}")
    run = Terminal([os.path.join(bundle, "launch.sh")], str(tmp_path), PYTHON=here.warm)
    run.until(lambda: finishing(run.out))
    interrupt(run)
    assert run.wait() == 0, run.output
    summary = json.loads(Path(run.out, "summary.json").read_text())
    assert summary["steps"] == payload(bundle)["arguments"]["max_steps"] == events(run.out)[-1]["step"]
    assert "model.safetensors" in summary["files"]


def finishing(out: str) -> bool:
    """Whether the run has recorded that all steps are done and only the final model must still be written."""
    try:
        return "finishing" in Path(out, "xpc_run.json").read_text()
    except OSError:
        return False
