"""Runs that are stopped and started again: when it helps, how often, and how long a run may take to stop."""

from __future__ import annotations

from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.setting import Path
from xpc.compiler.spec import Spec

TEMPFAIL = 75
"""The status of a run that was asked to stop, and that goes on when it is started again."""
RETRIES = 3
"""Where `retries` is not written."""
ONCE = "export XPC_RETRIES=0 # what failed is started again by the cluster, on all nodes\n"
"""For the shell of an engine that starts a run again itself: else launch.sh does."""


def starts_over(spec: Spec) -> Path | None:
    """The setting because of which a run that is started again has nothing to go on from, or None."""
    every = spec.amount("save.every")
    if every.unit == "never":
        return "save.every"
    if not spec.flag("save.full_state"):
        return "save.full_state"
    return "save.resume" if spec.get("save.resume") == "never" else None


def reads_requeue(spec: Spec) -> bool:
    """Whether the engine reads `requeue`: every one but `local`."""
    return spec.text("launch") in readers(BY_PATH["launch.requeue"])


def requeues(spec: Spec) -> bool:
    """Whether the engine starts the run again: as written, or where there is something to go on from."""
    return spec.flag("launch.requeue") if spec.written("launch.requeue") else starts_over(spec) is None


def retries(spec: Spec) -> int:
    """Times that a run which failed is started again; after a stop that was asked for it is without counting."""
    written = spec.get("launch.retries")
    if isinstance(written, int):
        return written
    again = requeues(spec) if reads_requeue(spec) else starts_over(spec) is None
    return RETRIES if again else 0


def grace(spec: Spec) -> int:
    """Seconds from the request to stop to the end: a step, and a checkpoint at 500 MB/s.

    14 bytes a parameter is what AdamW in mixed precision saves; five minutes at least.
    """
    facts = spec.model.facts
    seconds = 900 if facts is None else 120 + facts.params * 14 // 500_000_000
    return max(300, -(-seconds // 60) * 60)
