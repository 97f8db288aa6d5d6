"""SIGTERM and SIGUSR1 at random moments: the run saves, ends with 75, and goes on to what it would have become."""

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
    # two steps an epoch, and after each one an evaluation that takes longer than it
    "evaluating": (NEW, 4, text("data(holdout=48)", "eval(every=1, micro=1)", steps=9, save="every=4 keep=2")),
    "epochs": (NEW, 3, text("data(holdout=8)", "eval(every=epoch)", save="every=7", every="epoch")),
    "zero3": (NEW, 2, text(strategy="zero3", save="every=never")),
    "weights-only": (NEW, 2, text(world=1, save="every=5 full_state=false")),
    "old-zero2": (OLD, 3, text("data(holdout=8)", "eval(every=3)", target=OLD, strategy="zero2", save="every=epoch")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_runs_end_as_one_that_was_left_alone(
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
            before = checkpoints(out)
            if hit.total() < wanted:
                time.sleep(chance.uniform(0.15, 0.85) * lasts)
                ranks = [] if chance.random() < 0.5 else [chance.randrange(len(going.pids))]
                name = chance.choice(["SIGTERM", "SIGUSR1"])
                training = bool(events(out)) and all(map(alive, going.pids))
                for _ in range(chance.choice([1, 2])):
                    going.send(getattr(signal, name), *ranks)
                    time.sleep(0.02)
                status = going.wait(60)
                assert None not in status, f"the run does not stop: {going.text}"
                if set(status) == {0}:
                    continue  # it was done
                hit[f"{name} to {'one' if ranks else 'all'}"] += 1
                # Before the first step each process ends by itself: the others are sent away by the launcher.
                assert 75 in status or -signal.Signals[name].value in status, f"{status}: {going.text}"
                if training and "before the first step" not in going.text and "stopped as asked" in going.text:
                    assert set(status) == {75}, f"{status}: {going.text}"
                    assert checkpoints(out) != before or "evaluat" in kind, going.text
            else:
                status = going.wait()
                assert not any(status), f"{status}: {going.text}"
            assert "Traceback" not in going.text, going.text
        found = differences(result(out), expected)
        assert not found, f"run {number}, after {dict(hit)}:\n" + "\n".join(found)
    print(f"{kind}: {hit.total()} signals in {number} runs: {dict(hit)}")


def test_one_that_does_not_resume_saves_and_asks_for_no_other_start(
    runs: Callable[[str], Runs], tmp_path: object
) -> None:
    here = runs(NEW)
    bundle = here.compiled(text(world=1, steps=2000, every=1, save="every=never resume=never"), "once")
    going = here.start(bundle, str(tmp_path))
    going.until_step(2)
    going.send(signal.SIGTERM)
    assert going.wait() == [1]
    assert "is whole; this bundle does not resume (`resume = never`)" in going.text
    assert len(checkpoints(going.out)) == 1
