"""Functions with which proofs measure torch's gradient scaler, which fp16 needs."""

from __future__ import annotations

from typing import Any


def unscale(run: Any) -> dict[str, Any]:
    """One step of fp16 training: the loss is scaled, and the gradients are unscaled before clipping."""
    import torch

    model, scaler = run.model, torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ids = torch.arange(3, 19)[None]
    scaler.scale(model(input_ids=ids, labels=ids).loss).backward()
    scaler.unscale_(optimizer)
    return {"dtype": str(next(model.parameters()).dtype)}
