"""The rule about the number of evaluations in a run, and the number of rows in an evaluation (XP211)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.row_counts import trained as trained_rows
from xpc.compiler.plan.evaluations import evaluated_rows, evaluations
from xpc.compiler.rules.core.conditions import any_of, evaluation_rows, has_value
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec import Spec

WHEN = any_of(has_value("data.holdout"), evaluation_rows)
FORWARD = 3
"""A run can evaluate at least this many rows in the time that it needs to train on one row. An evaluation is only a
forward pass. Training is a forward and a backward pass, and a backward pass takes as long as two forward passes.
"""
SHARE = 0.1
"""If evaluations take too long, the help suggests so few evaluations that they take at most this share of the training
time.
"""


@rule("XP211", "evaluations-longer-than-training", "warning")
def evaluations_longer_than_training(spec: Spec) -> Iterator[Finding]:
    """Evaluations should not take longer than training. For example, `eval(every=1)` with `data(holdout=50%)` evaluates
    half of all rows after every step.

    Why it is bad: the GPUs are busy with evaluations, often for many times the duration of the training.

    Without this rule: nothing is reported; the run is slow, because each evaluation reads all evaluation rows.

    Source: transformers 5.23 `trainer_callback.py` (`DefaultFlowCallback`), `trainer.py` (`evaluation_loop`); confirmed
    by running it.
    """
    steps, rows = total_steps(spec), evaluated_rows(spec)
    number = None if steps is None else evaluations(spec, steps)
    if not steps or not rows or not number or number < 2 or spec.flag("batch.packing"):
        return
    trained = steps * spec.integer("batch.gbs")
    if number * rows <= FORWARD * trained or trained_rows(spec) == 0:
        return
    fewer = int(SHARE * FORWARD * trained / rows)
    often = f"write `every = {-(-steps // fewer)}`, or " if fewer else ""
    least = max(1, int(SHARE * FORWARD * trained / number))
    yield Finding(
        spec.location("eval.every", f"{number:,} times"),
        f"{number:,} evaluations of {rows:,} rows take longer than training on {trained:,} rows",
        f"{often}evaluate about {least:,} rows",
        (spec.label("data.holdout", "the rows of an evaluation"),) if spec.get("data.holdout") else (),
    )
