"""Recomputing: all but attention (XP481 to XP483), and layers of which some weights are frozen (XP572)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import chosen, either, on
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = either(on("memory.checkpointing.selective"), chosen("strategy", "zero3"))


@rule("XP481", "selective-cannot-be-reentrant")
def selective_reentrant(spec: Spec) -> Iterator[Finding]:
    """Selective checkpointing chooses what is not recomputed, by hooks that only the newer way of recomputing has.

    Today: ValueError when the trainer is built, also with adapters under ZeRO-3, whose recomputation TRL turns to the
    reentrant way. Source: trl 1.16 `sft_trainer.py:881,1085`; executed.
    """
    if not spec.flag("memory.checkpointing.selective"):
        return
    place = spec.place("memory.checkpointing.selective")
    if spec.lora and spec.zero_stage == 3:
        related = spec.label("strategy", "recomputes the reentrant way with adapters")
        yield Finding(place, "`selective` of adapters under zero3", "write `strategy zero2`", (related,))
    elif spec.flag("memory.checkpointing.reentrant"):
        related = spec.label("memory.checkpointing.reentrant", "the older way")
        yield Finding(place, "`selective` cannot be reentrant", "leave `reentrant` out", (related,))


@rule("XP482", "selective-not-in-the-stack")
def not_in_the_stack(spec: Spec) -> Iterator[Finding]:
    """Of the stacks, trl 1.16 alone keeps the output of attention.

    Today: trl 0.24 and 0.18 hand the word on, torch gives it to each layer, which ignores it, and everything is
    recomputed. Source: trl 1.16 `models/selective_activation_checkpointing.py`, torch 2.13 `utils/checkpoint.py`;
    executed with trl 0.24.
    """
    if spec.flag("memory.checkpointing.selective") and not spec.stack.facts.selective_checkpointing:
        yield Finding(
            spec.place("memory.checkpointing.selective", f"trl {spec.stack.pins['trl']}"),
            f"{spec.stack.name} recomputes everything or nothing",
            f"leave `selective` out, or write `target {able(lambda one: one.facts.selective_checkpointing)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP483", "selective-of-other-attention")
def other_attention(spec: Spec) -> Iterator[Finding]:
    """What is kept is known by the names of torch's own attention and of flash attention's kernels.

    Eager attention and flex attention have neither: nothing is kept, and no line says so. Source: trl 1.16
    `models/selective_activation_checkpointing.py` `_build_policy_fn`; executed.
    """
    attention = spec.text("model.attn")
    if spec.flag("memory.checkpointing.selective") and attention in ("eager", "flex"):
        yield Finding(
            spec.place("memory.checkpointing.selective", "keeps nothing here"),
            f"`selective` does nothing with {attention} attention",
            "leave `selective` out, or write `attn = sdpa`",
            (spec.label("model.attn", "the attention"),),
        )


@rule("XP572", "frozen-layers-recomputed-under-zero3")
def recomputed(spec: Spec) -> Iterator[Finding]:
    """Before DeepSpeed 0.19 layers of which some weights are frozen recompute in the reentrant way alone under ZeRO-3.

    Those are layers with adapters, and layers of which `freeze` trains some modules. The other way compares what it
    recomputes with what it saved, and finds weights gathered here and not there; layers that are trained or frozen as a
    whole do not differ. Today: CheckpointError in the first step. The reward trainer of trl 0.18 runs the model twice,
    which the reentrant way does not survive either where `freeze` trains modules. Source: torch `utils/checkpoint.py`;
    executed with deepspeed 0.16.8, 0.18.2 and 0.19.8.
    """
    path: Final = "memory.checkpointing.reentrant"
    facts = spec.stack.facts
    partly = spec.lora or spec.names("freeze.layer_modules")
    if not (partly and spec.zero_stage == 3 and facts.zero3_frozen_reentrant and spec.flag("memory.checkpointing")):
        return
    twice = facts.reward_runs_twice and spec.text("method") == "reward" and not spec.lora
    if twice or not spec.flag(path):
        yield Finding(
            spec.place("memory.checkpointing" if twice else path, "" if twice else "not the reentrant way"),
            "partly frozen layers cannot be recomputed like this under zero3",
            "write `memory(checkpointing=false)`" if twice else "write `memory(checkpointing(reentrant=true))`",
            (
                spec.label("strategy", "the strategy"),
                spec.label(spec.adapter, "the adapters") if spec.lora else spec.label("freeze", "the frozen layers"),
            ),
        )
