"""Decide whether activation checkpointing is reentrant, for a spec that does not state it."""

from __future__ import annotations

from xpc.compiler.language.methods import DEFAULT, METHODS, Method
from xpc.compiler.language.methods.definition import Get, generates_itself
from xpc.compiler.language.schema import ADAPTERS
from xpc.compiler.language.setting import FlagPath
from xpc.compiler.stacks import Stack

REENTRANT: FlagPath = "memory.checkpointing.reentrant"


def why_reentrant(stack: Stack, get: Get) -> str:
    """The reason why a run must use torch's older, reentrant checkpointing; "" if it uses the non-reentrant kind.

    There are three cases. TRL 1.16 always uses reentrant checkpointing for adapters under ZeRO-3, with a warning. On
    some stacks, partly frozen layers under ZeRO-3 need reentrant checkpointing (the rule XP572). On other stacks, a
    trainer that has generated completions leaves reentrant checkpointing on (`generation_ends_reentrant`).
    """
    if get("strategy") == "zero3" and _adapted(get):
        return "adapters under zero3 need reentrant checkpointing"
    if _partly_frozen(stack, get) and not frozen_runs_twice(stack, get):
        return "frozen layers under zero3 need reentrant checkpointing"
    if stack.facts.generation_ends_reentrant and generates_itself(_method(get), get):
        return f"{stack.name} leaves reentrant checkpointing on after generating"
    return ""


def frozen_runs_twice(stack: Stack, get: Get) -> bool:
    """Whether the trainer runs a partly frozen model forward twice before the backward pass. Under ZeRO-3, neither
    reentrant nor non-reentrant checkpointing supports this.
    """
    return stack.facts.reward_runs_twice and _method(get).name == "reward" and _partly_frozen(stack, get)


def _partly_frozen(stack: Stack, get: Get) -> bool:
    """True for a ZeRO-3 run in which `freeze` freezes only parts of layers, if such layers need reentrant checkpointing
    on this stack (the rule XP572).
    """
    layers = stack.facts.zero3_frozen_reentrant and bool(get("freeze.layer_modules"))
    return layers and get("strategy") == "zero3" and not _adapted(get)


def _adapted(get: Get) -> bool:
    return any(get(name) is True for name in ADAPTERS)


def _method(get: Get) -> Method:
    return METHODS[str(get("method") or DEFAULT)]
