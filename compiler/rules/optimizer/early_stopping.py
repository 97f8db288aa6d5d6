"""Rules about `eval.patience`, a setting that stops a run early if its evaluations do not improve (XP793 and XP794)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.rules.core.conditions import has_value
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.optimizer.best_model import LOAD
from xpc.compiler.spec import Spec

WHEN = has_value("eval.patience")


@rule("XP793", "patience-without-evaluations")
def patience_without_evaluations(spec: Spec) -> Iterator[Finding]:
    """`patience` needs evaluations.

    Why it is bad: `patience` counts evaluations without an improvement, so it has no meaning in a run without
    evaluations.

    Without this rule: AssertionError of transformers' EarlyStoppingCallback when training begins, after the data is
    tokenized.

    Source: transformers 5.23 and 4.52.3 `trainer_callback.py` (`EarlyStoppingCallback.on_train_begin`); confirmed by
    running it.
    """
    often = f"write `eval(every=5%, patience={spec.get('eval.patience')})`, or " if spec.evaluates else ""
    if spec.amount("eval.every") == NEVER:
        yield Finding(
            spec.location("eval.patience"),
            "`patience` does nothing: there are no evaluations",
            f"{often}leave `patience` out",
            (spec.label("eval.every", "the evaluations"),),
        )


@rule("XP794", "the-last-and-not-the-best", "note")
def last_and_not_best(spec: Spec) -> Iterator[Finding]:
    """`patience` should be used with `load_best_model_at_end`.

    Why it is bad: a run that is stopped early saves its last weights. The best weights are `patience` evaluations
    older.

    Without this rule: transformers warns when training begins: "Using EarlyStoppingCallback without
    load_best_model_at_end=True".

    Source: transformers 5.23 and 4.52.3 `trainer_callback.py`; confirmed by running it.
    """
    if spec.amount("eval.every") != NEVER and spec.extra_value("trl", LOAD) is not True:
        yield Finding(
            spec.location("eval.patience"),
            f"the final weights are from {spec.integer('eval.patience')} evaluations after the best",
            f"to save the best weights, write `extra trl({LOAD}=true)`, and save checkpoints at the evaluated steps",
        )
