"""kill -9 at random moments: the same command goes on, and the run ends as one that nothing happened to."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest
from emitted import NEW, OLD
from fault_runs import Runs, alive, checkpoints, differences, events, result, text

pytestmark = pytest.mark.slow

KINDS = {
    "ddp": (NEW, 6, text("data(holdout=8)", "eval(every=5, micro=2)")),
    "zero2": (NEW, 5, text("lora(rank=4, dropout=0.1)", strategy="zero2")),
    "zero3": (NEW, 5, text(strategy="zero3")),
    "one": (NEW, 3, text(world=1, save="every=epoch")),
    "old-ddp": (OLD, 2, text(target=OLD)),
    "old-zero2": (OLD, 3, text(target=OLD, strategy="zero2")),
}
"""Target, number of kills, and spec: dropout everywhere, ends of epochs, losses that are means over two steps."""


def moment(out: str) -> str:
    """Where a run is: for the tally of what was hit."""
    if os.path.isdir(os.path.join(out, "_saving")):
        return "saving"
    return "training" if events(out) or checkpoints(out) else "starting"


def pause(chance: random.Random, out: str, lasts: float) -> None:
    """Until a random moment of the run; every third time until one of a save, if there is a save in that time."""
    until = time.monotonic() + chance.uniform(0, 0.9 * lasts)
    if chance.random() < 1 / 3:
        until += lasts
        while time.monotonic() < until and not os.path.isdir(os.path.join(out, "_saving")):
            time.sleep(0.001)
        until = time.monotonic() + chance.uniform(0, 0.05)
    time.sleep(max(0.0, until - time.monotonic()))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_runs_end_as_one_that_was_left_alone(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: object, kind: str
) -> None:
    target, wanted, source = KINDS[kind]
    here = runs(target)
    bundle = here.compiled(source, kind)
    lasts, expected = here.undisturbed(bundle, os.path.join(str(tmp_path), "alone"))

    hit, starts, number = Counter[str](), 0, 0
    while hit.total() < wanted:
        number += 1
        cwd = os.path.join(str(tmp_path), f"run-{number}")
        out = os.path.join(cwd, "out")
        while not os.path.exists(os.path.join(out, "summary.json")):
            starts += 1
            assert starts < 20 * wanted, "the run never gets anywhere"
            going = here.start(bundle, cwd)
            if hit.total() < wanted:
                pause(chance, out, lasts)
                node = len(going.pids) == 1 or chance.random() < 0.5
                if any(map(alive, going.pids)):
                    hit[f"{'node' if node else 'rank'}, {moment(out)}"] += 1
                going.send(signal.SIGKILL, *([] if node else [chance.randrange(len(going.pids))]))
                status = going.wait(60)
                assert None not in status, f"a process outlives the others: {going.text}"
            else:
                status = going.wait()
                assert not any(status), f"{status}: {going.text}"
            assert "Traceback" not in going.text, going.text
        found = differences(result(out), expected)
        assert not found, f"run {number}, after {dict(hit)}:\n" + "\n".join(found)
    print(f"{kind}: {hit.total()} kills in {number} runs: {dict(hit)}")
