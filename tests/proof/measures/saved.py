"""Functions with which proofs measure the files that a run saves."""

from __future__ import annotations

import os
from typing import Any


def final(run: Any) -> dict[str, Any]:
    """The names of the files that the final save writes, and whether any of these files has weights."""
    folder = run.plan["arguments"]["output_dir"]
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return {"files": names, "weights": any(name.endswith((".safetensors", ".bin")) for name in names)}


def resumed(run: Any) -> dict[str, Any]:
    """Resume from the checkpoint of step 1 and train step 2. Return how many steps Adam's state has then counted."""
    trainer = run.trainer
    trainer.train()
    first = os.path.join(run.plan["arguments"]["output_dir"], "checkpoint-1")
    del run.trainer
    again = run.trainer
    again.train(resume_from_checkpoint=first)
    states = again.optimizer.state_dict()["state"]
    return {"adam": int(max(one["step"] for one in states.values())), "steps": again.state.global_step}


def loaded(run: Any) -> dict[str, Any]:
    """Let DeepSpeed's engine load the checkpoint of step 1. Return whether it did."""
    run.trainer.train()
    first = os.path.join(run.plan["arguments"]["output_dir"], "checkpoint-1")
    place, _ = run.trainer.deepspeed.load_checkpoint(first)
    return {"loaded": place is not None}


def states(run: Any) -> dict[str, Any]:
    """For how many parameters the first checkpoint has optimizer states."""
    import torch

    run.trainer.train()
    first = os.path.join(run.plan["arguments"]["output_dir"], "checkpoint-1")
    held = torch.load(os.path.join(first, "optimizer.pt"), map_location="cpu", weights_only=False)
    return {"states": sum(bool(one) for one in held["state"].values())}


def again(run: Any) -> dict[str, Any]:
    """Whether a run that is resumed after its first step trains again on the rows of this step."""
    import torch

    seen: list[Any] = []

    def listening(trainer: Any) -> Any:
        step = trainer.training_step

        def training_step(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(inputs["input_ids"].clone())
            return step(model, inputs, *args, **kwargs)

        trainer.training_step = training_step
        return trainer

    listening(run.trainer).train()
    whole, first = len(seen), os.path.join(run.plan["arguments"]["output_dir"], "checkpoint-1")
    del run.trainer
    listening(run.trainer).train(resume_from_checkpoint=first)
    return {"again": torch.equal(seen[0], seen[whole])}
