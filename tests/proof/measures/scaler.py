"""What torch's gradient scaler, which fp16 needs, says to the weights of a model."""

from __future__ import annotations

from typing import Any


def unscale(run: Any) -> dict[str, Any]:
    """One step of the model as fp16 training makes it: a scaled loss, and the gradients unscaled before the clip."""
    import torch

    model, scaler = run.model, torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ids = torch.arange(3, 19)[None]
    scaler.scale(model(input_ids=ids, labels=ids).loss).backward()
    scaler.unscale_(optimizer)
    return {"dtype": str(next(model.parameters()).dtype)}
