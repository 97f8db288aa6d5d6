"""Functions with which proofs measure arguments that a bundle states under two names at once."""

from __future__ import annotations

from typing import Any


def checkpointing(run: Any) -> dict[str, Any]:
    """Two values of one argument: the one that the bundle states under its older name, and the one that the built
    arguments have.
    """
    return {
        "asked": run.plan["arguments"].get("gradient_checkpointing"),
        "on": bool(run.args.activation_checkpointing),
    }
