"""Rules that compare intervals and `patience` with the length of the run (XP709 to XP711)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import AmountPath, IntegerPath, Path
from xpc.compiler.plan.evaluations import times
from xpc.compiler.rules.core.conditions import any_of, chosen, enabled, has_value, written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec import Spec

WHEN = any_of(
    written("save.every", "eval.every", "track.every", "optimizer.update_proj_gap"),
    enabled("method.sync_reference"),
    has_value("eval.patience"),
    chosen("schedule", "reduce_lr_on_plateau"),
)

NEVER_COMES: tuple[tuple[AmountPath, str], ...] = (
    ("save.every", "the run saves no checkpoint before its end"),
    ("eval.every", "the run evaluates at most once, at its end"),
    ("track.every", "the run logs no loss before its end"),
)
"""Maps interval settings to the consequence of an interval that is longer than the run."""
OF_STEPS: tuple[tuple[IntegerPath, Path, str], ...] = (
    ("method.sync_reference.every", "method.sync_reference", "the reference is never updated"),
    (
        "optimizer.update_proj_gap",
        "optimizer.update_proj_gap",
        "the gradients are always projected as in the first step",
    ),
)
"""Settings whose value is an interval in steps. Each entry has three parts: the setting; the setting that a finding
marks if the interval is a default; and the consequence of an interval that is longer than the run.
"""
FEW_STEPS, MANY = 10, 100
"""A rule reports an interval below `FEW_STEPS` steps, if the run would save more than `MANY` checkpoints with it."""


@rule("XP709", "interval-past-the-end", "warning")
def past_the_end(spec: Spec) -> Iterator[Finding]:
    """An interval of `save`, `eval` or `track` must not be longer than the run: a run of 100 steps with `save
    "out/run" every=500` saves no checkpoint before its end. The intervals at which the reference model
    (`sync_reference`) and GaLore's projection (`update_proj_gap`) are updated must not be longer than the run either.

    Why it is bad: without a checkpoint, a run that is stopped starts again from the beginning. If the interval of
    `track` is too long, there is no curve of the loss; if that of `eval` is too long, there is no curve of the
    evaluations. A reference model that is never updated stays the initial model.

    Without this rule: nothing is reported. At the end of the run, transformers saves a checkpoint; transformers 5.23
    also evaluates, and 4.52 does not.

    Source: transformers 5.23 and 4.52 `trainer_callback.py` (`DefaultFlowCallback`); confirmed by running it; trl 1.16
    `callbacks.py` (`SyncRefModelCallback`).
    """
    steps = total_steps(spec)
    if not steps:
        return
    for path, text in NEVER_COMES:
        every = spec.get(path)
        if every is None or every.unit != "count" or not spec.written(path) or every.value <= steps:
            continue
        if path == "eval.every" and not spec.evaluates:
            continue
        yield Finding(
            spec.location(path, f"the run has {steps} step{'' if steps == 1 else 's'}"),
            f"{text}: this interval is longer than the run",
            write(f"every = {max(1, steps // 4)}", ", or `every = epoch`"),
        )
    for number, marked, text in OF_STEPS:
        gap = spec.get(number)
        if gap is None or gap <= steps or not spec.written(marked):
            continue
        name = number.rpartition(".")[2]
        yield Finding(
            spec.location(number if spec.written(number) else marked, f"{gap} steps; the run has {steps}"),
            f"{text}: `{name}` is longer than the run",
            f"write `{name} = {max(1, steps // 4)}`, or leave `{marked.rpartition('.')[2]}` out",
        )


@rule("XP710", "checkpoints-every-few-steps", "warning")
def every_few_steps(spec: Spec) -> Iterator[Finding]:
    """A run should not save more than 100 checkpoints with fewer than 10 steps between them.

    Why it is bad: a checkpoint contains the weights and the optimizer's states, in full training 12 bytes or more for
    each parameter. Writing it takes longer than a step, and all GPUs wait. Without `keep`, the checkpoints also fill
    the disk.

    Without this rule: nothing is reported; the run takes several times as long.

    Source: transformers 5.23 and 4.52 `trainer.py` (`_save_checkpoint` is called between two steps).
    """
    every, steps = spec.amount("save.every"), total_steps(spec)
    if every.unit != "count" or not spec.written("save.every") or every.value >= FEW_STEPS:
        return
    if steps is None or steps / every.value > MANY:
        number = "" if steps is None else f"{int(steps / every.value):,} checkpoints"
        yield Finding(
            spec.location("save.every", number),
            f"the run saves a checkpoint after every {'step' if every.value == 1 else f'{every.value} steps'}",
            write("every = 5%" if steps is not None else "every = 500", ", or `every = epoch`"),
        )


@rule("XP711", "patience-longer-than-the-run", "warning")
def patience_past_the_end(spec: Spec) -> Iterator[Finding]:
    """`eval.patience`, which ends a run early, must be smaller than the number of evaluations in the run. The patience
    of `schedule reduce_lr_on_plateau` (10 by default) must be smaller than the number of evaluations minus 1.

    Why it is bad: patience counts evaluations without an improvement, and the first evaluation always counts as an
    improvement. So a run with 5 evaluations counts at most 4. It never ends early with a patience of 5, and its
    learning rate never falls with a patience of 4.

    Without this rule: nothing is reported; the run trains to its end, or its learning rate never falls.

    Source: transformers 5.23 and 4.52 `trainer_callback.py` (`EarlyStoppingCallback`); torch 2.13 `lr_scheduler.py`
    (`ReduceLROnPlateau.step`).
    """
    # an evaluation after the last step comes too late to end the run, or to change the learning rate
    often = times(spec, "eval.every", total_steps(spec)) if spec.evaluates else None
    if not often:
        return
    ends, falls = spec.get("eval.patience"), spec.get("schedule.patience")
    if ends is not None and ends >= often:
        yield Finding(
            spec.location("eval.patience", f"{often} evaluation{'' if often == 1 else 's'} in the run"),
            "the run never ends early: `patience` is not smaller than the number of its evaluations",
            f"write `patience = {max(1, often // 3)}`, or evaluate more often",
        )
    if spec.text("schedule") == "reduce_lr_on_plateau" and (10 if falls is None else falls) >= often - 1:
        yield Finding(
            spec.location(
                "schedule" if falls is None or not spec.written("schedule.patience") else "schedule.patience",
                f"{often} evaluation{'' if often == 1 else 's'} in the run",
            ),
            "the learning rate never falls: `patience` is not smaller than the number of evaluations after the first",
            f"write `patience = {max(0, often // 3 - 1)}`, or evaluate more often",
        )
