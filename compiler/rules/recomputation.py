"""`checkpointing(selective)`: what attention computed is kept, and the rest recomputed (XP48x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.conditions import on
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = on("memory.checkpointing.selective")


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
