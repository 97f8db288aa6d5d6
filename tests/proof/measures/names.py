"""What arguments become that are given under two names."""

from __future__ import annotations

from typing import Any


def checkpointing(scene: Any) -> dict[str, Any]:
    """What the older name asks for, and what the arguments do."""
    return {
        "asked": scene.plan["arguments"].get("gradient_checkpointing"),
        "on": bool(scene.args.activation_checkpointing),
    }
