"""Evaluate between two steps (transformers 4.52 to 5.23, trainer.py)."""

from typing import Any


def evaluate_now(trainer: Any) -> None:
    """Evaluate as transformers does between two steps. If the run saves only its best steps, and this step is the best
    one so far, save it."""
    metrics = trainer._evaluate(None, None)
    best = trainer._determine_best_metric(metrics=metrics, trial=None)
    if best and getattr(trainer.args.save_strategy, "value", trainer.args.save_strategy) == "best":
        trainer._save_checkpoint(trainer.model_wrapped, None)
