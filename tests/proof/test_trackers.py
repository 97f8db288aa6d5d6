"""Trackers without a network: what each of them keeps of a run, on both targets."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from functools import cache
from glob import glob

import pytest
from method_runs import STEPS, Trained, Warm, small
from stacks import has
from tiers import EACH_STACK

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow
HERE = {name: ("wandb", *(["trackio"] if load(name).facts.trackio else []), "tensorboard") for name in STACKS}
"""The trackers that the stack's transformers has callbacks for."""


@pytest.fixture(scope="module")
def tracked(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """The run of a target that reports to each of its trackers, trained once."""

    @cache
    def run(target: str) -> Trained:
        missing = [name for name in HERE[target] if not has(target, name)]
        if missing:
            pytest.skip(f"the interpreter of {target} has no {' and no '.join(missing)}")
        names = " ".join(HERE[target])
        text = small(method="sft", target=target).replace(
            "track none(every=1)", f'track {names} (project="colours", name="answers", every=1)'
        )
        cwd = str(tmp_path_factory.mktemp(target))
        return warm.train(text, f"tracked-{target}", target, cwd, WANDB_MODE="offline")

    return run


def read(path: str) -> bytes:
    with open(path, "rb") as handle:
        return handle.read()


@pytest.mark.parametrize("target", EACH_STACK)
def test_wandb_keeps_every_step(tracked: Callable[[str], Trained], target: str) -> None:
    done = tracked(target)
    (path,) = glob(os.path.join(os.path.dirname(done.out), "wandb", "offline-run-*", "*.wandb"))
    kept = read(path)
    assert b"colours" in kept  # the project
    assert b"answers" in kept  # the run
    for loss in done.values("loss"):
        assert repr(loss)[:12].encode() in kept


@pytest.mark.parametrize("target", EACH_STACK)
def test_tensorboard_keeps_every_step(tracked: Callable[[str], Trained], target: str) -> None:
    done = tracked(target)
    (path,) = glob(os.path.join(done.out, "runs", "*", "events.out.tfevents.*"))
    assert read(path).count(b"train/loss") == STEPS


def test_trackio_keeps_every_step(tracked: Callable[[str], Trained], warm: Warm) -> None:
    done = tracked(DEFAULT)
    with sqlite3.connect(os.path.join(warm.notes, "colours.db")) as kept:
        rows = [(name, json.loads(event)) for name, event in kept.execute("select run_name, metrics from metrics")]
    assert {name for name, _ in rows} == {"answers"}
    assert [event["train/loss"] for _, event in rows if "train/loss" in event] == done.values("loss")


@pytest.mark.parametrize("target", EACH_STACK)
def test_our_own_metrics_are_there_all_the_same(tracked: Callable[[str], Trained], target: str) -> None:
    assert [event["step"] for event in tracked(target).events] == list(range(1, STEPS + 1))
