"""Measurements that proofs make of arguments that are given under two names."""

from __future__ import annotations

from typing import Any


def checkpointing(run: Any) -> dict[str, Any]:
    """Return a pair: the value that the bundle states under the older of two names, and the value that the built
    arguments use.
    """
    return {
        "asked": run.plan["arguments"].get("gradient_checkpointing"),
        "on": bool(run.args.activation_checkpointing),
    }
