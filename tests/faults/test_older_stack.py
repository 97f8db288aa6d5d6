"""The older stack: kills and stops at random moments, of its processes and of accelerate 1.4's launcher."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from emitted import OLD
from fault_runs import Runs, text
from moments import killed, killed_launched, stopped, stopped_launched

pytestmark = pytest.mark.slow

KINDS = {
    "ddp": (killed, 2, text(target=OLD)),
    "zero2": (killed, 3, text(target=OLD, strategy="zero2")),
    "launcher": (killed_launched, 3, text(target=OLD)),
    "stops": (stopped, 3, text("data(holdout=8)", "eval(every=3)", target=OLD, strategy="zero2", save="every=epoch")),
    "stopped launcher": (stopped_launched, 2, text(target=OLD, strategy="zero2")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_runs_end_as_one_that_was_left_alone(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: object, kind: str
) -> None:
    happens, wanted, source = KINDS[kind]
    here = runs(OLD)
    happens(here, here.compiled(source, kind.replace(" ", "-")), str(tmp_path), chance, wanted)
