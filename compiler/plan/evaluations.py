"""Compute how often a run evaluates, on how many rows, and how long an evaluation takes compared with training."""

from __future__ import annotations

from math import ceil

from xpc.compiler.data.row_counts import epoch, filters, sampled, trained
from xpc.compiler.data.rows import count
from xpc.compiler.language.kinds import Amount
from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.paths import AmountPath
    from xpc.compiler.plan.load import Load


def times(spec: Spec, path: AmountPath, steps: int | None, last: bool = False) -> int | None:
    """How often a run of `steps` steps evaluates (if `path` is `eval.every`) or saves (if it is `save.every`). With
    `last`, the run also evaluates or saves at its last step. None if the result depends on an unknown number of steps
    or epochs.
    """
    every = spec.get(path)
    if not isinstance(every, Amount):
        return None
    if every.unit == "never":
        return 0
    if every.unit == "epoch":
        return _epochs(spec, steps)
    if steps is None:
        return None
    apart = every.value if every.unit == "count" else max(1, ceil(steps * every.value))
    if not apart:
        return None
    return ceil(steps / apart) if last else int(steps / apart)


def _epochs(spec: Spec, steps: int | None) -> int | None:
    """The number of epochs that a run of `steps` steps begins; None if the rows of an epoch are unknown."""
    epochs = spec.get("train.epochs")
    if epochs is not None:
        return ceil(float(epochs))
    unknown = spec.get("batch.packing") or spec.flag("data.streaming") or filters(spec)
    rows = None if unknown else trained(spec)
    return None if rows is None or steps is None else ceil(steps / epoch(spec, sampled(spec, rows))[0])


def evaluations(spec: Spec, steps: int | None) -> int | None:
    """The number of evaluations; None if unknown."""
    return times(spec, "eval.every", steps, last=spec.stack.facts.evaluates_last)


def evaluated_rows(spec: Spec) -> int | None:
    """The number of rows of one evaluation; None if unknown."""
    held_out = spec.get("data.holdout")
    if spec.evaluated:
        counts = [count(source) for one in spec.evaluated for source in one.sources]
        return None if None in counts else sum(one for one in counts if one is not None)
    if isinstance(held_out, Amount):
        if held_out.unit != "share":
            return int(held_out.value)
        counts = [count(source) for source in spec.data]
        if None not in counts:
            return ceil(held_out.value * sum(one for one in counts if one is not None))
    return None


def forward_share(load: Load) -> float:
    """The time to evaluate a row, divided by the time to train on it. An evaluation needs only a forward pass. Training
    needs a forward pass, a backward pass and perhaps recomputation. Operations are counted as in `time.py`.
    """
    again = load.through if load.checkpointing else 0.0
    return 1.0 / (1.0 + load.through + load.trained_share + again)
