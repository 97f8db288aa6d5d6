"""What arguments become that are given under two names."""

from __future__ import annotations

from typing import Any


def checkpointing(run: Any) -> dict[str, Any]:
    """What the older name asks for, and what the arguments do."""
    return {
        "asked": run.plan["arguments"].get("gradient_checkpointing"),
        "on": bool(run.args.activation_checkpointing),
    }
