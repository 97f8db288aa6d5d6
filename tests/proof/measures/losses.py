"""Functions with which proofs measure losses: on which tokens and arguments a loss depends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _first(trainer: Any) -> Any:
    return trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))


def _loss(trainer: Any, batch: Any) -> Any:
    import torch

    torch.manual_seed(0)
    return trainer.compute_loss(trainer.model, dict(batch))


def gradient(run: Any) -> dict[str, Any]:
    """Return a pair: the largest absolute gradient of the first batch, and the batch's loss."""
    trainer = run.trainer
    trainer.model.train()
    loss = _loss(trainer, _first(trainer))
    loss.backward()
    found = [part.grad.abs().max().item() for part in trainer.model.parameters() if part.grad is not None]
    return {"largest": max(found, default=0.0), "loss": loss.item(), "moves": max(found, default=0.0) > 1e-9}


def answers(run: Any) -> dict[str, Any]:
    """Two numbers for the first batch: how many tokens of answers have a loss, and how long the longest sequence is."""
    batch = _first(run.trainer)
    labels = [value for name, value in batch.items() if name.endswith("_labels")]
    lengths = [value.shape[1] for name, value in batch.items() if name.endswith("_input_ids")]
    return {"learned": sum(int((one != -100).sum()) for one in labels), "longest": max(lengths)}


def smoothing(run: Any) -> dict[str, Any]:
    """Whether label smoothing changes the loss of the first batch."""

    def off(trainer: Any) -> None:
        trainer.label_smoothing, trainer.label_smoother = 0.0, None

    return {"read": _difference(run, off) > 1e-6}


def modulated(run: Any) -> dict[str, Any]:
    """Whether `discopop_tau` changes the loss of the first batch."""

    def larger(trainer: Any) -> None:
        trainer.args.discopop_tau *= 5

    return {"read": _difference(run, larger) > 1e-7}


def coefficient(run: Any) -> dict[str, Any]:
    """Whether `f_alpha_divergence_coef` changes the loss of the first batch."""

    def other(trainer: Any) -> None:
        trainer.f_alpha_divergence_coef = 0.9  # trl 1
        trainer.f_divergence_params = {"alpha_divergence_coef": 0.9}  # older trl

    return {"read": _difference(run, other) > 1e-7}


def _difference(run: Any, change: Callable[[Any], None]) -> float:
    """By how much a change of the trainer changes the loss of the first batch."""
    trainer = run.trainer
    trainer.model.eval()
    shift_reference(trainer)
    batch = _first(trainer)
    before = _loss(trainer, batch).item()
    change(trainer)
    return abs(float(_loss(trainer, batch).item()) - before)


def terms(run: Any) -> dict[str, Any]:
    """Return two answers for the first batch: whether cpo's loss has a margin, and whether it has a likelihood term for
    the chosen answers.
    """
    trainer = run.trainer
    trainer.model.eval()
    batch = _first(trainer)
    loss = _loss(trainer, batch).item()
    trainer.simpo_gamma = 7.0
    margin = abs(_loss(trainer, batch).item() - loss) > 1e-6
    trainer.simpo_gamma = run.args.simpo_gamma
    trainer.cpo_alpha = 0.0
    return {"margin": margin, "likelihood": abs(_loss(trainer, batch).item() - loss) > 1e-6}


def divergence(run: Any) -> dict[str, Any]:
    """Whether the loss depends on the bundle's divergence: whether the loss of the first batch changes if the default
    divergence, reverse KL, replaces it.
    """
    trainer = run.trainer
    trainer.model.eval()
    shift_reference(trainer)
    batch = _first(trainer)
    other = _loss(trainer, batch).item()
    trainer.f_divergence_type = type(trainer.f_divergence_type)("reverse_kl")
    return {"read": abs(_loss(trainer, batch).item() - other) > 1e-6}


def shift_reference(trainer: Any) -> None:
    """Change the weights of a reference model a little. If they were equal to the policy's, all differences between the
    two models would be 0.
    """
    import torch

    reference = getattr(trainer, "ref_model", None)
    if reference is not None:
        with torch.no_grad():
            for part in reference.parameters():
                part.add_(torch.randn_like(part) * 0.05)


def moved(run: Any) -> dict[str, Any]:
    """Return a pair: whether training has changed any trained weight, and the number of steps."""
    import torch

    trainer = run.trainer
    before = {name: part.detach().clone() for name, part in trainer.model.named_parameters() if part.requires_grad}
    trainer.train()
    now = dict(trainer.model.named_parameters())
    changed = any(not torch.equal(part, now[name]) for name, part in before.items())
    return {"moved": changed, "steps": trainer.state.global_step}


def hidden(run: Any) -> dict[str, Any]:
    """Train a step of two micro-batches whose second loss is replaced by nan. Return whether the logged loss is
    nevertheless a number, so that the nan stays hidden.
    """
    import math

    trainer = run.trainer
    step, calls = trainer.training_step, []

    def training_step(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        loss = step(*args, **kwargs)
        return loss * float("nan") if len(calls) == 2 else loss

    trainer.training_step = training_step
    trainer.train()
    logged = [event["loss"] for event in trainer.state.log_history if "loss" in event]
    return {"hidden": bool(logged) and not any(math.isnan(one) for one in logged)}


def averaged(run: Any) -> dict[str, Any]:
    """Return whether the log-probabilities that dpo computes for the first batch change if sigmoid is its only loss."""
    trainer = run.trainer
    batch = _first(trainer)
    several = _chosen(trainer, batch)["chosen_logps"]
    trainer.loss_type = ["sigmoid"]
    alone = _chosen(trainer, batch)["chosen_logps"]
    return {"others": bool((several - alone).abs().max() > 1e-3), "share": float((several / alone).mean())}


def flattened(run: Any) -> dict[str, Any]:
    """Whether flattened (padding-free) pairs give dpo's losses the same inputs as padded pairs."""
    trainer = run.trainer
    batch = _first(trainer)
    found = []
    for trainer.padding_free in (True, False):
        made = _chosen(trainer, batch)
        found.append(
            [made["chosen_logps"].mean().item(), made.get("nll_loss", made["chosen_logps"].new_zeros(())).item()]
        )
    apart = max(abs(flat - padded) / (abs(padded) + 1e-9) for flat, padded in zip(*found, strict=True))
    return {"same": apart < 1e-3, "apart": apart}


def _chosen(trainer: Any, batch: Any) -> Any:
    import torch

    trainer.model.eval()
    with torch.no_grad():
        return trainer.concatenated_forward(trainer.model, dict(batch))


def compared(run: Any) -> dict[str, Any]:
    """Whether the loss of the first batch is independent of the model: whether it stays the same when all weights of
    the model change.
    """
    import torch

    trainer = run.trainer
    trainer.model.eval()
    batch = _first(trainer)
    before = _loss(trainer, batch).item()
    torch.manual_seed(1)
    with torch.no_grad():
        for part in trainer.model.parameters():
            part.add_(torch.randn_like(part) * 0.05)
    return {"stays": abs(_loss(trainer, batch).item() - before) < 1e-6}
