"""Rules about the recomputation of activations: selective checkpointing (XP481 to XP483), and layers that are partly
frozen (XP572).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import FlagPath
from xpc.compiler.rules.core.conditions import any_of, chosen, enabled
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = any_of(enabled("memory.checkpointing.selective"), chosen("strategy", "zero3"))


@rule("XP481", "selective-cannot-be-reentrant")
def selective_reentrant(spec: Spec) -> Iterator[Finding]:
    """`checkpointing(selective)` cannot be reentrant. So adapters under ZeRO-3 cannot use it, because TRL makes their
    checkpointing reentrant.

    Why it is bad: selective checkpointing uses torch's hooks to choose which outputs are kept, and only torch's
    non-reentrant checkpointing has these hooks.

    Without this rule: ValueError when the trainer is built.

    Source: trl 1.16 `sft_trainer.py:881,1085`; confirmed by running it.
    """
    if not spec.flag("memory.checkpointing.selective"):
        return
    location = spec.location("memory.checkpointing.selective")
    if spec.lora and spec.zero_stage == 3:
        related = spec.label("strategy", "uses reentrant recomputation with adapters")
        message = "`selective` cannot be used with adapters under zero3"
        yield Finding(location, message, "write `strategy zero2`", (related,))
    elif spec.flag("memory.checkpointing.reentrant"):
        related = spec.label("memory.checkpointing.reentrant", "the older implementation")
        yield Finding(location, "`selective` cannot be reentrant", "leave `reentrant` out", (related,))


@rule("XP482", "selective-not-in-the-stack")
def not_in_the_stack(spec: Spec) -> Iterator[Finding]:
    """`checkpointing(selective)`, which keeps the outputs of attention and recomputes the rest, needs trl 1.16.

    Why it is bad: on stacks with trl 0.18 and 0.24, the run would recompute everything.

    Without this rule: trl 0.24 and 0.18 pass the setting on to torch, torch passes it on to each layer, and the layers
    ignore it.

    Source: trl 1.16 `models/selective_activation_checkpointing.py`, torch 2.13 `utils/checkpoint.py`; confirmed by
    running it with trl 0.24.
    """
    if spec.flag("memory.checkpointing.selective") and not spec.stack.facts.selective_checkpointing:
        yield Finding(
            spec.location("memory.checkpointing.selective", f"trl {spec.stack.pins['trl']}"),
            f"{spec.stack.name} recomputes everything or nothing",
            f"leave `selective` out, or write `target {able(lambda one: one.facts.selective_checkpointing)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP483", "selective-of-other-attention")
def other_attention(spec: Spec) -> Iterator[Finding]:
    """`checkpointing(selective)`, which keeps the outputs of attention, needs sdpa or flash attention.

    Why it is bad: trl keeps the outputs of certain kernels, selected by name: those of sdpa and of flash attention.
    Eager and flex attention have no such kernels, so nothing is kept.

    Without this rule: nothing is reported.

    Source: trl 1.16 `models/selective_activation_checkpointing.py` `_build_policy_fn`; confirmed by running it.
    """
    attention = spec.text("model.attn")
    if spec.flag("memory.checkpointing.selective") and attention in ("eager", "flex"):
        yield Finding(
            spec.location("memory.checkpointing.selective", "keeps nothing"),
            f"`selective` does nothing with {attention} attention",
            "leave `selective` out, or write `attn = sdpa`",
            (spec.label("model.attn", "the attention"),),
        )


@rule("XP572", "frozen-layers-recomputed-under-zero3")
def partly_frozen_recomputed(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO-3 before DeepSpeed 0.19, partly frozen layers must be recomputed with reentrant checkpointing. A layer
    is partly frozen if it has adapters, or if `freeze` trains only some of its modules. With such a `freeze`, the
    reward trainer of trl 0.18 cannot use checkpointing at all, because it runs the model twice in each step.

    Why it is bad: non-reentrant checkpointing compares recomputed tensors with the saved tensors, and raises an error
    if their shapes differ. The shapes differ for partly frozen layers, because ZeRO-3 gathers the weights of such a
    layer either in the forward pass or in the recomputation, but not in both.

    Without this rule: CheckpointError in the first step.

    Source: torch `utils/checkpoint.py`; confirmed by running it with deepspeed 0.16.8, 0.18.2 and 0.19.8.
    """
    path: FlagPath = "memory.checkpointing.reentrant"
    facts = spec.stack.facts
    partly = spec.lora or spec.names("freeze.layer_modules")
    if not (partly and spec.zero_stage == 3 and facts.zero3_frozen_reentrant and spec.flag("memory.checkpointing")):
        return
    twice = facts.reward_runs_twice and spec.text("method") == "reward" and not spec.lora
    if twice or not spec.flag(path):
        yield Finding(
            spec.location("memory.checkpointing" if twice else path, "" if twice else "not reentrant"),
            "partly frozen layers cannot be recomputed "
            + ("by a reward trainer under zero3" if twice else "under zero3 unless reentrant"),
            "write `memory(checkpointing=false)`" if twice else "write `memory(checkpointing(reentrant=true))`",
            (
                spec.label("strategy", "the strategy"),
                spec.label(spec.adapter, "the adapters") if spec.lora else spec.label("freeze", "the frozen layers"),
            ),
        )
