"""A run goes on with another number of processes: the same rows in the same order, and losses but for a sum's order."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from glob import glob

import pytest
from emitted import put
from fault_runs import Runs, result, text
from interpreters import OTHERS
from stacks import payload

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

BOUND = 1e-4
"""Largest difference of two losses, relative: float32, sums of 8 rows in another order, 14 steps long."""


def chained(here: Runs, source: Callable[[int], str], worlds: list[int], folder: str, name: str) -> None:
    """A run that is killed on the first number of processes, stopped on the next ones, and ends on the last."""
    still(here)
    bundles = [here.compiled(source(world), f"{name}-{world}") for world in worlds]
    if not payload(bundles[0])["arguments"]["average_tokens_across_devices"]:
        pytest.skip("refused: its sft weighs the tokens of each process by themselves")
    alone, cwd = os.path.join(folder, "alone"), os.path.join(folder, "chain")
    here.start(bundles[0], alone, "recorded.py").wait()
    expected = result(os.path.join(alone, "out"))
    rows = recorded(alone)
    found: dict[int, list[str]] = {}
    for number, bundle in enumerate(bundles):
        going = here.start(bundle, cwd, "recorded.py")
        if number < len(bundles) - 1:
            going.until_step(6 + 4 * number)
            going.send(signal.SIGTERM if number else signal.SIGKILL)
        status = going.wait()
        assert number < len(bundles) - 1 or not any(status), going.text
        found.update(recorded(cwd))
        for path in glob(os.path.join(cwd, "rows-*.jsonl")):
            os.remove(path)
        if number:
            told = f"now; the run began with {worlds[0]} process(es)" in going.text
            assert told is (worlds[number] != worlds[0]), going.text
            assert "going on from checkpoint-" in going.text, going.text
    assert found == rows
    got = result(os.path.join(cwd, "out"))
    assert [one["step"] for one in got["events"]] == [one["step"] for one in expected["events"]]
    worst = 0.0
    for one, other in zip(got["events"], expected["events"], strict=True):
        worst = max(worst, abs(one["loss"] - other["loss"]) / abs(other["loss"]))
        assert (one["lr"], one["epoch"]) == (other["lr"], other["epoch"])
        assert one.get("tokens") == other.get("tokens")
    print(f"{name}: {worst:.1e}")
    assert worst < BOUND
    assert got["sequences"] == expected["sequences"]


def recorded(cwd: str) -> dict[int, list[str]]:
    """The rows of each step in the order in which they are dealt out: a micro-batch to each process in turn."""
    steps: dict[int, list[tuple[int, int, list[str]]]] = {}
    for path in glob(os.path.join(cwd, "rows-*.jsonl")):
        rank = int(path.rpartition("-")[2].split(".")[0])
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                one = json.loads(line)
                mine = steps.setdefault(one["step"], [])
                mine.append((sum(rank == theirs for _, theirs, _ in mine), rank, one["rows"]))
    return {step: [row for _, _, rows in sorted(parts) for row in rows] for step, parts in steps.items()}


def still(here: Runs) -> None:
    """A model `still`: `tiny` without dropout."""
    place = os.path.join(here.place, "still")
    if os.path.exists(place):
        return
    shutil.copytree(os.path.join(here.place, "tiny"), place)
    with open(os.path.join(place, "config.json"), encoding="utf-8") as handle:
        stated = json.load(handle)
    put(here.place, {"still/config.json": json.dumps({**stated, "attention_dropout": 0.0})})


def source(target: str, strategy: str, world: int, *more: str) -> str:
    """14 steps of 8 rows: on 2 processes two micro-batches of 2 each, on 4 one of 2, on 3 rows of 6."""
    made = text(*more, world=world, strategy=strategy, target=target)
    return made.replace('"tiny"', '"still"')


TARGETS = [DEFAULT, *(pytest.param(one, marks=pytest.mark.nightly) for one in OTHERS)]


@pytest.mark.parametrize("target", TARGETS)
def test_goes_on_with_more_and_fewer_processes(runs: Callable[[str], Runs], tmp_path: object, target: str) -> None:
    chained(runs(target), partial(source, target, "ddp"), [2, 4, 1], str(tmp_path), f"others-{target}")
