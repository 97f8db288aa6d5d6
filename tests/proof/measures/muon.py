"""Functions with which proofs measure Muon under each strategy: TRL's trainer with the runtime's Muon."""

from __future__ import annotations

import math
import sys
from types import MethodType
from typing import Any

from small_run import REPOSITORY


def _installed(run: Any) -> Any:
    """Give the trainer the optimizer that its bundle states, and limit the run to one step. Return the trainer."""
    sys.path.append(REPOSITORY)
    from runtime.features.optimizer.muon import MuonTrainer

    trainer = run.trainer
    if "muon" in run.plan:
        trainer.muon, trainer.muon_shards = run.plan["muon"], run.plan["run"]["zero_stage"] > 0
        trainer.create_optimizer = MethodType(MuonTrainer.create_optimizer, trainer)
    trainer.args.max_steps = 1
    return trainer


def trained(run: Any) -> dict[str, Any]:
    """Train the run. Raises any exception of the training."""
    _installed(run).train()
    return {}


def moved(run: Any) -> dict[str, Any]:
    """Two ratios about the length (norm) of Muon's first step. `share` is the ratio between the step and the step at
    Muon's original scale. `uneven` is the ratio between the steps of tall matrices and the steps of wide matrices.

    The norm of an orthogonal update is sqrt(the shorter side); the original scale of a tall matrix is sqrt(rows /
    columns). With torch's `match_rms_adamw`, the updates of a matrix and of its transpose have equal norms.
    """
    trainer = _installed(run)
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    norms, shares = dict[str, float](), []
    for name, weight in trainer.model.named_parameters():
        if name.endswith("proj.weight"):
            norm = float((weight.detach().float() - before[name].float()).norm())
            rows, columns = weight.shape
            norms[name] = norm
            scale = math.sqrt(min(rows, columns) * max(1, rows / columns))
            shares.append(norm / scale / run.plan["muon"]["matrices"]["lr"])
    tall = sum(norm for name, norm in norms.items() if "up_proj" in name)
    wide = sum(norm for name, norm in norms.items() if "down_proj" in name)
    return {"share": sum(shares) / len(shares), "uneven": tall / wide}


def sharded(run: Any) -> dict[str, Any]:
    """Compare the first step of a sharded run with the same step without sharding, by torch's Muon or AdamW. Return the
    relative distance between the two steps.
    """
    import torch

    trainer = _installed(run)
    create, plan, seen = trainer.create_optimizer, run.plan.get("muon"), list[float]()

    def complete(tensor: Any) -> Any:
        return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()

    def create_optimizer(*args: Any) -> Any:
        optimizer = create(*args)
        step = optimizer.step

        def compared(*rest: Any, **more: Any) -> Any:
            weights = optimizer.param_groups[0]["params"]
            before, alone = [complete(one) for one in weights], [torch.nn.Parameter(complete(one)) for one in weights]
            for copy, one in zip(alone, weights, strict=True):
                copy.grad = complete(one.grad)
            group = optimizer.param_groups[0]
            names = ("lr", "weight_decay", *(("momentum", "adjust_lr_fn") if plan else ("betas", "eps")))
            kind = torch.optim.Muon if plan else torch.optim.AdamW
            kind(alone, **{name: group[name] for name in names}).step()
            step(*rest, **more)
            for one, copy, old in zip(weights, alone, before, strict=True):
                seen.append(float((complete(one) - copy).norm() / (copy - old).norm()))

        optimizer.step = compared
        return optimizer

    trainer.create_optimizer = create_optimizer
    trainer.train()
    return {"off": max(seen)}


def separate(run: Any) -> dict[str, Any]:
    """Change the last row of the adapter's weight; return whether a layer's output for its first input stays the
    same.
    """
    import torch

    model = run.trainer.model
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_()
        name, weight = next((name, one) for name, one in model.named_parameters() if one.requires_grad)
        module = model.get_submodule(name.partition(".lora_A")[0].partition(".oft_R")[0])
        some = torch.zeros(1, 1, module.in_features)
        some[..., 0] = 1
        before = module(some)
        weight[-1] += 0.5
        return {"separate": bool(torch.equal(before, module(some))), "rows": len(weight), "of": name}


def all_trained(run: Any) -> dict[str, Any]:
    """Build torch's Muon with every trained weight. Raises any exception of torch."""
    import torch

    trained = [one for one in run.trainer.model.parameters() if one.requires_grad]
    torch.optim.Muon(trained)
    return {"matrices": len(trained)}


def all_hidden(run: Any) -> dict[str, Any]:
    """Build torch's Muon with every weight inside the layers. Raises any exception of torch."""
    import torch

    hidden = [one for name, one in run.model.named_parameters() if ".layers." in name and one.ndim > 1]
    torch.optim.Muon(hidden)
    return {"matrices": len(hidden)}
