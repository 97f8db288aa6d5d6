"""On every stack except the default one, runs survive kills and stop requests. The kills and requests arrive at random
moments, in the training processes or in accelerate's launcher.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from fault_runs import Runs, text
from interpreters import OTHERS, sharded
from moments import killed, killed_launched, stopped, stopped_launched
from tiers import nightly_but

pytestmark = pytest.mark.slow

KINDS = {
    "ddp": (killed, 2, "ddp", text),
    "zero2": (killed, 3, "zero2", text),
    "launcher": (killed_launched, 3, "ddp", text),
    "stops": (stopped, 3, "zero2", partial(text, "data(holdout=8)", "eval(every=3)", save="every=epoch")),
    "stopped launcher": (stopped_launched, 2, "zero2", text),
}


DAILY = ("trl-0.18", "ddp")
"""The kind of run that `make test` tries; `make slow` tries every kind on each stack."""


@pytest.mark.parametrize(("target", "kind"), nightly_but(product(OTHERS, KINDS), DAILY.__eq__))
def test_runs_end_as_one_that_was_left_alone(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, target: str, kind: str
) -> None:
    happens, wanted, strategy, source = KINDS[kind]
    here = runs(target)
    happens(
        here,
        here.compiled(source(target=target, strategy=sharded(target, strategy)), kind.replace(" ", "-")),
        str(tmp_path),
        chance,
        wanted,
    )
