"""Functions with which proofs measure the effect of numbers under `extra trl` on two training steps."""

from __future__ import annotations

import math
from typing import Any


def step(run: Any) -> dict[str, Any]:
    """Train two steps. Return which logged values and which weights are NaN or infinite, the last losses, and whether
    any weight has changed.

    Rows differ in length, and evaluation rows are used if the bundle has an evaluation.
    """
    import torch

    run.__dict__["rows"] = run.rows.map(_longer, with_indices=True)
    if run.args.eval_strategy != "no":
        run.__dict__["held"] = run.rows.select(range(4))
    trainer = run.trainer
    before = {name: part.detach().clone() for name, part in trainer.model.named_parameters() if part.requires_grad}
    trainer.train()
    events = trainer.state.log_history
    numbers = {name: value for event in events for name, value in event.items() if isinstance(value, float)}
    now = dict(trainer.model.named_parameters())
    return {
        "nan": sorted(name for name, value in numbers.items() if not math.isfinite(value)),
        "weights": sum(not bool(torch.isfinite(part).all()) for part in now.values()),
        "loss": [numbers.get(name) for name in ("loss", "grad_norm", "eval_loss")],
        "evaluated": sum("eval_loss" in event for event in events),
        "moved": any(not torch.equal(part, now[name]) for name, part in before.items()),
    }


def filled_step(run: Any) -> dict[str, Any]:
    """Take a step as `step` does, but with uninitialized memory filled with NaN."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    return step(run)


def _longer(row: dict[str, Any], index: int) -> dict[str, Any]:
    """The row, with its texts repeated. The number of repetitions differs from row to row."""
    times = 1 + index % 3
    more = {name: text * times for name, text in row.items() if isinstance(text, str)}
    turns = {name: [{**turn, "content": turn["content"] * times} for turn in list_]
             for name, list_ in row.items() if isinstance(list_, list)}  # fmt: skip
    return {**row, **more, **turns}
