"""`kill -9` at random moments: the same command resumes the run, and the run's result equals the result of an
undisturbed run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import GRPO, Runs, text
from method_runs import SETTINGS, small
from moments import killed, killed_launched
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

KINDS = {
    "ddp": (4, text("data(holdout=8)", "eval(every=5, micro=2)")),
    "zero2": (3, text("lora(rank=4, dropout=0.1)", strategy="zero2")),
    "zero3": (2, text(strategy="zero3")),
    "one": (2, text(world=1, save="every=epoch")),
    "dpo": (2, small("method dpo", method="dpo", save='save "out" every=1 keep=2')),
    "distill": (2, small("method distill" + SETTINGS["distill"], method="distill", save='save "out" every=1 keep=2')),
    "grpo": (2, small(GRPO, method="grpo", save='save "out" every=1 keep=2')),
}
"""Maps each case to the number of times that the run is killed, and to its spec. The specs have dropout and several
epochs, and log the mean loss of two steps.
"""
LAUNCHED = {
    "accelerate": (3, text(strategy="zero2")),
    "torchrun": (3, text("launch local(launcher=torchrun)")),
    "simple": (3, text(world=1)),
}


@pytest.mark.parametrize("kind", nightly_but(KINDS, lambda kind: kind not in ("zero2", "distill")))
def test_killed_runs_end_as_one_that_was_left_alone(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    wanted, source = KINDS[kind]
    here = runs(DEFAULT)
    killed(here, here.compiled(source, f"kill-{kind}"), str(tmp_path), chance, wanted)


@pytest.mark.parametrize("kind", nightly_but(LAUNCHED, lambda kind: kind == "accelerate"))
def test_a_launcher_and_its_processes_end_with_each_other(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    wanted, source = LAUNCHED[kind]
    here = runs(DEFAULT)
    killed_launched(here, here.compiled(source, f"kill-launched-{kind}"), str(tmp_path), chance, wanted)
