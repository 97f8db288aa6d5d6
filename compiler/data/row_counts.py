"""Rows that a run trains on, and the optimizer steps that follow from them."""

from __future__ import annotations

from math import ceil

from xpc.compiler.data.rows import count
from xpc.compiler.language.kinds import Amount
from xpc.compiler.spec import Spec


def trained(spec: Spec) -> int | None:
    """Rows that are trained on, after `take` and without the holdout; None if unknown."""
    rows = 0
    for source in spec.data:
        available, take = count(source), source.take
        if take is not None and take.unit == "count":
            rows += int(take.value) if available is None else min(available, int(take.value))
        elif available is None:
            return None
        else:
            rows += available if take is None else int(available * take.value)
    held = spec.get("data.holdout")
    if isinstance(held, Amount):
        rows -= ceil(rows * held.value) if held.unit == "share" else int(held.value)
    return max(0, rows)


def steps_of_rows(spec: Spec, rows: int) -> int:
    """Optimizer steps that this many rows make; `dataloader_drop_last` drops the rows of an incomplete batch."""
    together = spec.integer("batch.micro") * spec.replicas
    dropped = spec.extra_value("trl", "dataloader_drop_last") is True
    batches = rows // together if dropped else -(-rows // together)
    return ceil(max(1, -(-batches // spec.integer("batch.accum"))) * spec.real("train.epochs"))
