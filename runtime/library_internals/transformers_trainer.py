"""The private methods of transformers' Trainer that a run overrides. Each override calls a method of the run's trainer.

transformers 4.52 to 5.23, trainer.py: there is no public hook between a step and its save, nor around a checkpoint.
"""

import re
from collections.abc import Callable
from typing import Any


class TrainerHooks:
    """A base class before trl's trainer in the class order (MRO), with methods that transformers calls."""

    staging: str | None = None
    """The folder into which a checkpoint is written. None means the folder that transformers uses."""
    args: Any

    log_save_evaluate: Callable[..., None]
    """Called after each step and each epoch. Its argument is transformers' function that logs, saves and evaluates."""
    save_checkpoint: Callable[..., None]
    """Called for each checkpoint. Its argument is transformers' function that writes the checkpoint."""

    def _maybe_log_save_evaluate(self, *args: object, **kwargs: object) -> None:
        follow = super()._maybe_log_save_evaluate  # type: ignore[misc]
        self.log_save_evaluate(lambda: follow(*args, **kwargs))

    def _save_checkpoint(self, model: Any, trial: object) -> None:
        write = super()._save_checkpoint  # type: ignore[misc]
        self.save_checkpoint(lambda: write(model, trial))

    def _get_output_dir(self, trial: object) -> str:
        return self.staging or super()._get_output_dir(trial)  # type: ignore[misc]


def last_logged(trainer: object) -> int:
    """The step of the last log; 0 before training."""
    return int(getattr(trainer, "_globalstep_last_logged", 0))


def resume_log(trainer: Any, step: int) -> None:
    """Make the next logged loss the mean over the steps after ``step`` only."""
    trainer._globalstep_last_logged = step


def metrics_since(trainer: object) -> Any:
    """trl's lists of metrics since the last log, by name. In trl 0.18, the method decides which attribute has them."""
    for name in ("_metrics", "_stored_metrics"):
        if hasattr(trainer, name):
            return getattr(trainer, name)["train"]
    return {}


def tokens_trained(trainer: object) -> float:
    """The number of tokens trained since this start of the program. 0 if trl's trainer does not count tokens."""
    return float(getattr(trainer, "_total_train_tokens", 0))


def attention(model: Any) -> str:
    """The attention that the language model really uses, by the name that a bundle has for it.

    Without the package flash-attn, transformers loads the same kernels from the hub, and uses their repository's name.
    """
    name = str(model.config.get_text_config()._attn_implementation)
    kernel = re.search(r"/.*flash-attn(\d?)", name)
    return f"flash_attention_{kernel[1] or 2}" if kernel else name
