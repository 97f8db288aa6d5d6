"""Functions with which proofs measure arguments that a bundle states under two names at once."""

from __future__ import annotations

from typing import Any


def checkpointing(run: Any) -> dict[str, Any]:
    """Two values of one argument: the value that the bundle states under the argument's older name, and the value in
    the built arguments.
    """
    return {
        "asked": run.plan["arguments"].get("gradient_checkpointing"),
        "on": bool(run.args.activation_checkpointing),
    }
