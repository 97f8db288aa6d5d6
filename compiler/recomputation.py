"""How activations are recomputed where a spec does not say."""

from __future__ import annotations

from xpc.compiler.language.schema import ADAPTERS
from xpc.compiler.language.setting import FlagPath
from xpc.compiler.methods import DEFAULT, METHODS
from xpc.compiler.methods.method import Get, generates_itself
from xpc.compiler.stacks import Stack

REENTRANT: FlagPath = "memory.checkpointing.reentrant"


def why_reentrant(stack: Stack, get: Get) -> str:
    """Why a run recomputes in torch's older way, or nothing: it does not.

    TRL 1.16 sets it for adapters under ZeRO-3, with a warning; layers of which some modules are frozen need it there
    (XP572); and what has generated recomputes so on some stacks (`generation_ends_reentrant`).
    """
    facts, method = stack.facts, METHODS[str(get("method") or DEFAULT)]
    if get("strategy") == "zero3":
        if any(get(name) is True for name in ADAPTERS):
            return "adapters under zero3 need it"
        twice = facts.reward_runs_twice and method.name == "reward"
        if facts.zero3_frozen_reentrant and get("freeze.layer_modules") and not twice:
            return "frozen layers under zero3 need it"
    if facts.generation_ends_reentrant and generates_itself(method, get):
        return f"{stack.name} recomputes so once it has generated"
    return ""
