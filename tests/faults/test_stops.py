"""SIGTERM and SIGUSR1 at random moments: the run saves and ends with status 75. After it has been resumed, its result
equals the result of an undisturbed run.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import GRPO, Runs, checkpoints, text
from method_runs import small
from moments import stopped, stopped_launched
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

KINDS = {
    # two steps per epoch, and after each step an evaluation, which takes longer than the step
    "evaluating": (3, text("data(holdout=24)", "eval(every=1, micro=1)", steps=9, save="every=4 keep=2")),
    "epochs": (3, text("data(holdout=8)", "eval(every=epoch)", save="every=7", every="epoch")),
    "zero3": (2, text(strategy="zero3", save="every=never")),
    "weights-only": (2, text(world=1, save="every=5 full_state=false")),
    "dpo": (2, small("method dpo", method="dpo")),
    "grpo": (2, small(GRPO, method="grpo")),
}
LAUNCHED = {
    "torchrun": (3, text("launch local(launcher=torchrun)", strategy="zero2")),
    "simple": (2, text(world=1)),
}


@pytest.mark.parametrize("kind", nightly_but(KINDS, lambda kind: kind != "dpo"))
def test_stopped_runs_end_as_one_that_was_left_alone(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    wanted, source = KINDS[kind]
    here = runs(DEFAULT)
    stopped(here, here.compiled(source, f"stop-{kind}"), str(tmp_path), chance, wanted)


@pytest.mark.parametrize("kind", nightly_but(LAUNCHED, lambda kind: kind == "simple"))
def test_launcher_forwards_a_signal(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    wanted, source = LAUNCHED[kind]
    here = runs(DEFAULT)
    stopped_launched(here, here.compiled(source, f"stop-launched-{kind}"), str(tmp_path), chance, wanted)


def test_one_that_does_not_resume_saves_and_asks_for_no_other_start(
    runs: Callable[[str], Runs], tmp_path: Path
) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(text(world=1, steps=2000, every=1, save="every=never resume=never"), "once")
    going = here.start(bundle, str(tmp_path))
    going.until_step(2)
    going.send(signal.SIGTERM)
    assert going.wait() == [1]
    assert "is complete; this bundle does not resume (`resume = never`)" in going.text
    assert len(checkpoints(going.out)) == 1
