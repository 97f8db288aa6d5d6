"""Rules about `every` of `save`, `eval` and `track`, compared with the length of the run (XP709, XP710)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import AmountPath
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec import Spec

WHEN = written("save.every", "eval.every", "track.every")

NEVER_COMES: tuple[tuple[AmountPath, str], ...] = (
    ("save.every", "the run saves no checkpoint before its end"),
    ("eval.every", "the run evaluates at most once, at its end"),
    ("track.every", "the run logs no loss before its end"),
)
"""The intervals, each with what happens if the run ends before the first one is over."""
FEW_STEPS, MANY = 10, 100
"""A checkpoint every few steps means an interval below `FEW_STEPS` and more than `MANY` checkpoints."""


@rule("XP709", "interval-past-the-end", "warning")
def past_the_end(spec: Spec) -> Iterator[Finding]:
    """An interval of `save`, `eval` or `track` must not be longer than the run: a run of 100 steps with `save
    "out/run" every=500` saves no checkpoint before its end.

    Why it is bad: a run that is stopped starts again from the beginning, and there is no curve of its loss or of its
    evaluations, although the spec asks for it.

    Without this rule: nothing is reported. At the end of the run, transformers saves a checkpoint; transformers 5.23
    also evaluates, and 4.52 does not.

    Source: transformers 5.23 and 4.52 `trainer_callback.py` (`DefaultFlowCallback`); confirmed by running it.
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
            f"{text}: the first of its intervals is longer than the run",
            write(f"every = {max(1, steps // 4)}", ", or `every = epoch`"),
        )


@rule("XP710", "checkpoints-every-few-steps", "warning")
def every_few_steps(spec: Spec) -> Iterator[Finding]:
    """A run should not save hundreds of checkpoints with less than 10 steps between them.

    Why it is bad: a checkpoint contains the weights and the optimizer's states: of full training, 12 bytes or more for
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
