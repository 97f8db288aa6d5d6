"""Functions with which proofs measure the best checkpoint, full determinism and pickled weights."""

from __future__ import annotations

import os
import sys
from typing import Any


def _checkpoints(run: Any) -> list[str]:
    folder = run.plan["arguments"]["output_dir"]
    return sorted(name for name in os.listdir(folder) if name.startswith("checkpoint-"))


def kept(run: Any) -> dict[str, Any]:
    """Return two numbers of checkpoints: how many exist at most during the run, and how many exist after its end."""
    from transformers import TrainerCallback

    seen: list[int] = []

    class Count(TrainerCallback):
        def on_save(self, *_: Any, **__: Any) -> None:
            seen.append(len(_checkpoints(run)))

    run.trainer.add_callback(Count())
    run.trainer.train()
    return {"most": max(seen), "left": len(_checkpoints(run))}


def patient(run: Any) -> dict[str, Any]:
    """Train with transformers' callback for early stopping. Raises any exception of the training."""
    from transformers import EarlyStoppingCallback

    run.trainer.add_callback(EarlyStoppingCallback(2))
    run.trainer.train()
    return {"steps": run.trainer.state.global_step}


def evaluated(run: Any) -> dict[str, Any]:
    """Return how many evaluations a run makes, and which checkpoint it loads at the end as its best checkpoint."""
    run.trainer.train()
    state = run.trainer.state
    return {"evaluations": sum("eval_loss" in one for one in state.log_history), "best": state.best_model_checkpoint}


def deterministic(run: Any) -> dict[str, Any]:
    """Return two booleans: whether CUDA kernels are launched one by one (blocking), and whether torch uses only
    deterministic kernels.
    """
    import torch

    # the trainer's constructor sets both values that are returned below
    run.trainer  # noqa: B018
    return {
        "blocking": os.environ.get("CUDA_LAUNCH_BLOCKING") == "1",
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def resumable(run: Any) -> dict[str, Any]:
    """The files of the first checkpoint, and what the bundle's own program finds missing when it wants to resume from
    it.
    """
    import small_run

    sys.path.append(small_run.REPOSITORY)
    from runtime.core.checkpoints import missing
    from runtime.features.saving.transformers_checkpoints import TransformersCheckpoints

    folder = os.path.join(run.plan["arguments"]["output_dir"], "checkpoint-1")
    return {
        "files": sorted(os.listdir(folder)),
        "missing": missing(folder, 1, 1, TransformersCheckpoints().check_checkpoint),
    }
