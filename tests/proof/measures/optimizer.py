"""Functions with which proofs measure an optimizer: which arguments it reads, in which micro-batches it steps, and
which learning rates its groups of weights have.
"""

from __future__ import annotations

from typing import Any


def _weights(trainer: Any) -> Any:
    """All trained weights of this process as one vector. If the model is sharded, the vector consists of the process's
    shards.
    """
    import torch

    parts = [part.detach() for part in trainer.model_wrapped.parameters() if part.requires_grad]
    return torch.cat([getattr(part, "_local_tensor", part).reshape(-1).float() for part in parts])


def copies(run: Any) -> dict[str, Any]:
    """Whether all processes have the same weights after training, and whether training has changed any weight."""
    import torch
    import torch.distributed as dist

    trainer = run.trainer
    before = _weights(trainer).clone()
    trainer.train()
    mine = _weights(trainer)
    theirs = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(theirs, mine.clone())
    same = all(torch.equal(one, mine) for one in theirs)
    return {"same": same, "moved": before.shape != mine.shape or not torch.equal(before, mine)}


def early(run: Any) -> dict[str, Any]:
    """Whether the optimizer changes weights before the last micro-batch of a step, which is too early."""
    import torch

    trainer, moved = run.trainer, []
    step = trainer.training_step

    def training_step(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = _weights(trainer).clone()
        loss = step(model, *args, **kwargs)
        if not trainer.accelerator.sync_gradients:
            moved.append(not torch.equal(before, _weights(trainer)))
        return loss

    trainer.training_step = training_step
    trainer.train()
    return {"early": any(moved), "micro-batches": len(moved)}


def groups(run: Any) -> dict[str, Any]:
    """The settings (such as the learning rate) in the optimizer's parameter groups. If the groups differ in a setting,
    the first group's value is returned.
    """
    optimizer = run.trainer.create_optimizer()
    found: dict[str, Any] = {}
    for group in reversed(optimizer.param_groups):
        found |= {name: value for name, value in group.items() if name != "params"}
    return found


def states(run: Any) -> dict[str, Any]:
    """Whether an optimizer that projects gradients stores fewer values than Adam, which stores two values for each
    trained weight.
    """
    trainer = run.trainer
    trainer.train()
    optimizer = trainer.optimizer.optimizer
    parts = [part for group in optimizer.param_groups if "rank" in group for part in group["params"]]
    kept = [optimizer.state[part] for part in parts if part in optimizer.state]
    moments = sum(one[name].numel() for one in kept for name in ("exp_avg", "exp_avg_sq"))
    whole = 2 * sum(part.numel() for part in parts if part.requires_grad)
    return {"moments": moments, "whole": whole, "fewer": moments < whole}


def rates(run: Any) -> dict[str, Any]:
    """The highest learning rate during a run, as a share of `learning_rate`. Raises any exception of the training."""
    trainer, seen = run.trainer, []
    step = trainer.training_step

    def training_step(*args: Any, **kwargs: Any) -> Any:
        seen.append(trainer.optimizer.param_groups[0]["lr"])
        return step(*args, **kwargs)

    trainer.training_step = training_step
    trainer.train()
    return {"highest": max(seen) / run.args.learning_rate, "rates": seen}


def averaged(run: Any) -> dict[str, Any]:
    """Whether the model's weights change when a schedule-free optimizer switches to its averaged weights."""
    import torch

    trainer = run.trainer
    trainer.args.max_steps = 2
    trainer.train()
    before = _weights(trainer).clone()
    trainer.optimizer.eval()
    return {"averaged": not torch.equal(before, _weights(trainer))}
