"""Restarts of a stopped run: whether a restarted run could resume, how often a run is restarted, and how much time a
run gets to stop.
"""

from __future__ import annotations

from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.setting import Path
from xpc.compiler.spec import Spec

TEMPFAIL = 75
"""The exit status of a run that stopped on request. When it is started again, the run resumes."""
RETRIES = 3
"""The default of `retries`."""
ONCE = "export XPC_RETRIES=0 # the cluster restarts a failed run, on all nodes\n"
"""A shell line that keeps launch.sh from restarting a failed run. Engines that restart runs themselves use this line.
"""


def restart_blocker(spec: Spec) -> Path | None:
    """The setting that keeps a restarted run from resuming, such as `resume = never`, or a setting with which the run
    saves no checkpoints or only weights. None if the run can resume.
    """
    every = spec.amount("save.every")
    if every.unit == "never":
        return "save.every"
    if not spec.flag("save.full_state"):
        return "save.full_state"
    return "save.resume" if spec.get("save.resume") == "never" else None


def reads_requeue(spec: Spec) -> bool:
    """Whether the spec's engine reads `requeue`. Every engine except `local` does."""
    return spec.text("launch") in readers(BY_PATH["launch.requeue"])


def requeues(spec: Spec) -> bool:
    """Whether the engine restarts a run that was stopped. The setting `requeue` decides. Without this setting, the
    engine restarts runs that can resume from a checkpoint.
    """
    return spec.flag("launch.requeue") if spec.written("launch.requeue") else restart_blocker(spec) is None


def retries(spec: Spec) -> int:
    """How often, at most, a run is restarted after failures. A restart after a stop on request does not count."""
    written = spec.get("launch.retries")
    if isinstance(written, int):
        return written
    again = requeues(spec) if reads_requeue(spec) else restart_blocker(spec) is None
    return RETRIES if again else 0


def grace(spec: Spec) -> int:
    """The number of seconds that a run gets to stop after a stop request: at least five minutes, and enough to finish
    its step and to write a checkpoint at 500 MB/s.

    For AdamW in mixed precision, a checkpoint has 14 bytes per parameter.
    """
    facts = spec.model.facts
    seconds = 900 if facts is None else 120 + facts.params * 14 // 500_000_000
    return max(300, -(-seconds // 60) * 60)
