"""What the libraries make of the batch."""

from __future__ import annotations

from typing import Any


def product(scene: Any) -> dict[str, Any]:
    """Sequences in an optimizer step as the trainer's arguments multiply them, and those that the spec asked for."""
    args = scene.args
    trained = args.per_device_train_batch_size * args.gradient_accumulation_steps * scene.plan["run"]["world_size"]
    asked = scene.plan["run"]["gbs"]
    return {"trained": trained, "asked": asked, "same": trained == asked}
