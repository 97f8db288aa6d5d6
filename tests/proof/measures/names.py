"""Measures of arguments that are given under two names."""

from __future__ import annotations

from typing import Any


def checkpointing(run: Any) -> dict[str, Any]:
    """The value of the older argument, and what the built arguments do."""
    return {
        "asked": run.plan["arguments"].get("gradient_checkpointing"),
        "on": bool(run.args.activation_checkpointing),
    }
