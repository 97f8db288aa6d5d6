"""Functions with which proofs measure evaluations."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch


def metrics(run: Any) -> dict[str, Any]:
    """The names of metrics, without the prefix `eval_`. These metrics can choose the best checkpoint, and the schedule
    can read them.
    """
    found = run.trainer.evaluate()
    names = [name.removeprefix("eval_") for name in found if name.startswith("eval_")]
    return {
        "names": sorted(set(names) - {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time"})
    }


def averaged(run: Any) -> dict[str, Any]:
    """Whether two evaluations of the same five rows give the same loss.

    The first evaluation could differ from later ones, because transformers gathers Python objects in the first one, and
    tensors in each later one.
    """
    rows = run.trainer.train_dataset.select(range(5))
    first, second = (run.trainer.evaluate(rows)["eval_loss"] for _ in range(2))
    return {"alike": abs(first - second) < 1e-6, "first": first, "second": second}


def interval(run: Any) -> dict[str, Any]:
    """The number of steps from one evaluation to the next, according to the built arguments."""
    return {"steps": run.args.eval_steps}


def without_trackers(run: Any) -> dict[str, Any]:
    """Build the trainer as if wandb and comet were not installed. They are not installed for a bundle that does not use
    them.
    """
    names = {"is_wandb_available": lambda: False, "is_comet_available": lambda: False}
    there = sys.modules[run.maker.__module__]
    with patch.multiple(there, **{one: answer for one, answer in names.items() if hasattr(there, one)}):
        run.trainer  # noqa: B018
    return {}


def rows_seen(run: Any) -> dict[str, Any]:
    """Whether the evaluations of a run pass more rows through the model than the training does."""
    seen = {True: 0, False: 0}

    def count(model: Any, _: Any, batch: dict[str, Any]) -> None:
        seen[model.training] += len(batch["input_ids"])

    run.trainer.model.register_forward_pre_hook(count, with_kwargs=True)
    run.trainer.train()
    return {"more": seen[False] > seen[True], "evaluated": seen[False], "trained": seen[True]}
