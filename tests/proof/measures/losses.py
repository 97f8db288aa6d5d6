"""What a loss learns from."""

from __future__ import annotations

from typing import Any


def _first(trainer: Any) -> Any:
    return trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))


def _loss(trainer: Any, batch: Any) -> Any:
    import torch

    torch.manual_seed(0)
    return trainer.compute_loss(trainer.model, dict(batch))


def gradient(scene: Any) -> dict[str, Any]:
    """The largest gradient of the first batch, and its loss."""
    trainer = scene.trainer
    trainer.model.train()
    loss = _loss(trainer, _first(trainer))
    loss.backward()
    found = [part.grad.abs().max().item() for part in trainer.model.parameters() if part.grad is not None]
    return {"largest": max(found, default=0.0), "loss": loss.item(), "moves": max(found, default=0.0) > 1e-9}


def smoothing(scene: Any) -> dict[str, Any]:
    """Whether the first batch's loss is another one without the label smoothing of the arguments."""
    trainer = scene.trainer
    trainer.model.eval()
    shift_reference(trainer)
    batch = _first(trainer)
    smoothed = _loss(trainer, batch).item()
    trainer.label_smoothing = 0.0
    trainer.label_smoother = None
    return {"read": abs(_loss(trainer, batch).item() - smoothed) > 1e-6}


def divergence(scene: Any) -> dict[str, Any]:
    """Whether the first batch's loss is another one under the usual divergence, reverse KL."""
    trainer = scene.trainer
    trainer.model.eval()
    shift_reference(trainer)
    batch = _first(trainer)
    other = _loss(trainer, batch).item()
    trainer.f_divergence_type = type(trainer.f_divergence_type)("reverse_kl")
    return {"read": abs(_loss(trainer, batch).item() - other) > 1e-6}


def shift_reference(trainer: Any) -> None:
    """Moves a reference model a little, or it says the same as the model and every difference is 0."""
    import torch

    reference = getattr(trainer, "ref_model", None)
    if reference is not None:
        with torch.no_grad():
            for part in reference.parameters():
                part.add_(torch.randn_like(part) * 0.05)


def moved(scene: Any) -> dict[str, Any]:
    """Whether a trained weight is another one after training, and how many steps there were."""
    import torch

    trainer = scene.trainer
    before = {name: part.detach().clone() for name, part in trainer.model.named_parameters() if part.requires_grad}
    trainer.train()
    now = dict(trainer.model.named_parameters())
    changed = any(not torch.equal(part, now[name]) for name, part in before.items())
    return {"moved": changed, "steps": trainer.state.global_step}


def hidden(scene: Any) -> dict[str, Any]:
    """Whether a loss that is nan is logged as a number: the second of two micro-steps gives none."""
    import math

    trainer = scene.trainer
    step, calls = trainer.training_step, []

    def training_step(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        loss = step(*args, **kwargs)
        return loss * float("nan") if len(calls) == 2 else loss

    trainer.training_step = training_step
    trainer.train()
    logged = [event["loss"] for event in trainer.state.log_history if "loss" in event]
    return {"hidden": bool(logged) and not any(math.isnan(one) for one in logged)}
