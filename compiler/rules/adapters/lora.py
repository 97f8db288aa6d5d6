"""Rules about LoRA and quantized bases (XP425, XP429, XP438, XP453 to XP459)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.language.schema import path_of
from xpc.compiler.language.setting import FlagPath
from xpc.compiler.registry.linear_layers import HEADS, TABLES
from xpc.compiler.rules.adapters.layers import READ_BY_THE_KERNEL, STATE_SPACES, adaptable
from xpc.compiler.rules.adapters.module_names import contains, missing_layer
from xpc.compiler.rules.core.conditions import adapters, fused_loss
from xpc.compiler.rules.core.modules import EMBEDDINGS
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.optimizer.requirements import CONVOLUTIONS
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.fused_experts import names
from xpc.compiler.stacks.modules import LORA, ends, last_names, numbered, paths, possible

WHEN = adapters


@rule("XP429", "rate-of-no-embedding", "warning")
def rate_of_embeddings(spec: Spec) -> Iterator[Finding]:
    """`embedding_lr` needs an adapter on an embedding, as in `targets = [q_proj, embed_tokens]`. `all-linear` puts no
    adapter on embeddings. `modules_to_save = [embed_tokens]` trains the embedding itself, at `lr`.

    Why it is bad: without an adapter on an embedding, `embedding_lr` has no effect.

    Without this rule: nothing is reported.

    Source: peft 0.21 and 0.17 `optimizers/loraplus.py` (`loraplus_lr_embedding`), `tuners/lora/layer.py` (`Embedding`).
    """
    if not spec.written("lora.embedding_lr") or spec.get("lora.lr_ratio") is None:
        return
    if all(one.isidentifier() and one not in EMBEDDINGS for one in _last_parts(spec)):
        yield Finding(
            spec.location("lora.embedding_lr", "the learning rate of adapters on embeddings"),
            "`embedding_lr` has no effect, because no adapter is on an embedding",
            "leave `embedding_lr` out, or name the embedding in `targets`",
            (spec.label("lora.targets", "the targets"),),
        )


def _last_parts(spec: Spec) -> list[str]:
    """The last parts of the targets' names: `q_proj` for `self_attn.q_proj`. Empty for `all-linear`."""
    targets = spec.get("lora.targets")
    return [one.rpartition(".")[2] for one in targets] if isinstance(targets, tuple) else []


@rule("XP438", "packed-weights-cast")
def packed_weights_cast(spec: Spec) -> Iterator[Finding]:
    """A sharded 4-bit base must be loaded in the precision of the run. Its 4-bit codes are packed into a tensor
    that has the dtype in which the model is loaded. ZeRO-3 and FSDP cast all sharded tensors to the run's precision.

    Why it is bad: a cast to another dtype changes the packed 4-bit codes.

    Without this rule: a cast from bf16 to fp16, or from fp16 to bf16, silently turns the base into noise. A cast from
    fp32 to 16 bits loses half of the base's bytes, and the first step raises RuntimeError.

    Source: deepspeed 0.19.8 and 0.18.2 `runtime/engine.py` (`_configure_distributed_model`), torch 2.13
    `_fsdp_param.py` (`param_dtype`); confirmed by running it with ZeRO-3.
    """
    dtype, precision = spec.text("model.dtype"), spec.text("precision")
    if spec.bits == 4 and spec.weights_sharded and precision != "fp32" and dtype != precision:
        yield Finding(
            spec.location("model.dtype", f"the quantized weights are stored as {dtype}"),
            f"{spec.text('strategy')} casts all sharded weights to {precision}, including quantized weights",
            write(f"dtype = {precision}"),
            (spec.label("precision"), spec.label("strategy")),
        )


@rule("XP453", "eight-bits-sharded")
def eight_bits_sharded(spec: Spec) -> Iterator[Finding]:
    """An 8-bit base cannot be sharded: its weights are integers with separate scales, and FSDP shards only
    floating-point numbers. A 4-bit base can be sharded, because its bytes are stored as numbers of a floating-point
    dtype.

    Why it is bad: FSDP cannot shard an 8-bit base. ZeRO-3 can, but every process also keeps a full copy, so no memory
    is saved.

    Without this rule: FSDP1 raises ValueError and FSDP2 AttributeError in the first step. ZeRO-3 trains with the full
    copies; for ZeRO-3 this rule only warns.

    Source: bitsandbytes 0.50 `Int8Params`; confirmed by running it in two processes.
    """
    if spec.bits == 8 and spec.weights_sharded:
        name = spec.text("strategy")
        yield Finding(
            spec.location("lora.bits", "8-bit weights have no storage dtype"),
            f"{name} cannot shard an 8-bit base"
            if spec.sharded_by_fsdp
            else f"{name} keeps a full copy of an 8-bit base in every process",
            write("bits = 4"),
            (spec.label("strategy", "the strategy"),),
            severity=None if spec.sharded_by_fsdp else "warning",
        )


@rule("XP454", "adapter-on-the-head")
def adapter_on_head(spec: Spec) -> Iterator[Finding]:
    """`lm_head` cannot have an adapter if the trainer multiplies by the head's weight directly, because this bypasses
    the adapter. trl 1.16 does so for all methods except orpo and reward. trl 0.18 and 0.24 do so only with
    `use_liger_loss`.

    Why it is bad: the adapter on `lm_head` would never be trained.

    Without this rule: ValueError in the trainer's constructor of trl 1.16, after the data is tokenized; older versions
    report nothing.

    Source: trl 1.16 `sft_trainer.py`, `dpo_trainer.py`, `kto_trainer.py`, `grpo_trainer.py`, `rloo_trainer.py`,
    confirmed by running it; trl 0.24 and 0.18 `grpo_trainer.py` `compute_liger_loss`.
    """
    heads = [one for one in spec.names("lora.targets") if one.rpartition(".")[2] in HEADS]
    if heads and spec.method.head != "model" and fused_loss(spec):
        others = [one for one in spec.names("lora.targets") if one not in heads]
        named = f"write `targets = [{', '.join(others)}]`" if others else "leave `targets` out, for all linear layers"
        yield Finding(
            spec.location("lora.targets", f"`{heads[0]}` is the output head"),
            f"{spec.stack.name} never trains an adapter on `{heads[0]}`",
            f"{named}; `modules_to_save = [{heads[0]}]` trains the head completely",
            (spec.label("method", "the method"),),
        )


@rule("XP425", "trained-head-under-fsdp")
def trained_head_under_fsdp(spec: Spec) -> Iterator[Finding]:
    """With FSDP on trl-1.16, `modules_to_save` cannot name the output head under `strategy fsdp1`, and cannot name tied
    embeddings or their head under `strategy fsdp`. FSDP1 shards each trained module with adapters apart, but TRL's loss
    multiplies by the head's weight without calling the head, so FSDP does not gather it. FSDP2 shards the head apart,
    too, and cannot share a tied weight between two units.

    Why it is bad: the run fails before its first step.

    Without this rule: under FSDP1, RuntimeError ("mat2 must be a matrix") in the first step; under FSDP2, ValueError
    ("is shared with a parameter already managed by another FSDP group") when the model is sharded.

    Source: peft 0.21 `fsdp_auto_wrap_policy`; trl 1.16 `add_fused_lm_head`; accelerate 1.15 `fsdp2_prepare_model`;
    torch 2.13 `fully_shard`; confirmed by running it on CPU processes.
    """
    facts, saved = spec.model.facts, spec.names("lora.modules_to_save")
    refused: tuple[str, ...]
    if not spec.sharded_by_fsdp:
        return
    if spec.by_fsdp1:
        refused = HEADS if spec.stack.facts.fused_head and spec.method.head != "model" else ()
    else:
        refused = TABLES if spec.stack.facts.fsdp2_head_apart and facts is not None and facts.tied else ()
    for name in [one for one in saved if one.rpartition(".")[2] in refused][:1]:
        others = [one for one in saved if one.rpartition(".")[2] not in refused]
        yield Finding(
            spec.location("lora.modules_to_save", f"`{name}` would be sharded apart"),
            f"{spec.text('strategy')} cannot train `{name}` of {spec.model.name} with adapters",
            f"leave {name} out of `modules_to_save`, or write `strategy zero3`",
            (spec.label("strategy", "the strategy"), spec.model.label),
            f"modules_to_save = [{', '.join(others)}]" if others else None,
        )


@rule("XP455", "adapter-without-a-module")
def no_module(spec: Spec) -> Iterator[Finding]:
    """`targets` must name modules that the model has and that can have an adapter, each of them inside of `within`, if
    the spec states it. xpc knows these modules for every registered family on each stack. If the experts of a mixture
    are one stacked parameter, `targets` may still name their layers (`gate_proj`): PEFT converts such names.

    Why it is bad: a module that does not exist gets no adapter.

    Without this rule: if none of the modules exists, peft raises an exception after the model is loaded; if only some
    are missing, peft leaves them out, and the runtime stops the run before its first step.

    Source: peft 0.21 `tuners_utils.py`, `utils/transformers_weight_conversion.py`; confirmed by running it on every
    family (`tests/stacks/write_modules.py`).
    """
    beyond = list(missing_layer(spec, "lora.targets"))
    yield from beyond
    family, targets = spec.model.model_type, spec.names("lora.targets") if not beyond else ()
    known = possible(spec.stack.name, family, spec.model.config) if targets else {}
    if not known:
        return
    legal = paths(known, adaptable(spec))
    if spec.method.scores:
        legal = tuple(path for path in legal if path not in HEADS)
    # If a target matches a module that cannot have an adapter, PEFT raises an exception, even if the target also
    # matches legal modules.
    never = [path for path, kinds in known.items() if not kinds]
    missing = [
        one
        for one in targets
        if not (ends(one, legal) or _has_its_own_rule(spec, one, known)) or (ends(one, never) and ends(one, legal))
    ]
    if not missing:
        yield from _outside(spec, targets, legal)
        return
    kept = [one for one in targets if one not in missing]
    converted = () if not spec.low_rank else names(spec.stack, family)
    apart = [one for one in missing if one.rpartition(".")[2] in (*converted, "gate")[: 4 * bool(converted)]]
    if apart and ends(apart[0], known):
        last = apart[0].rpartition(".")[2]
        yield Finding(
            spec.location("lora.targets"),
            f"`{apart[0][:60]}` of {spec.model.name} cannot have an adapter: PEFT adapts the experts' `{last}` instead",
            write(f"targets = [{', '.join(kept)}]")
            if kept and not _half(spec, kept)
            else f"write `{last}` for the experts, or name the module in `modules_to_save` to train it completely",
            (spec.model.label,),
        )
        return
    better, certain = _better(spec, targets, kept, legal)
    known_names = [name for name in last_names(legal) if name not in (*EMBEDDINGS, *HEADS)]
    yield Finding(
        spec.location("lora.targets", f"{family} has {', '.join(known_names)}"),
        f"{spec.model.name} has no module `{missing[0][:60]}`"
        if len(missing) == 1
        else f"{spec.model.name} has no modules {', '.join(f'`{one[:60]}`' for one in missing[:4])}",
        f"write `{better}`" if better else f"name modules of {family}, or write `targets = all-linear`",
        (spec.model.label,),
        replace=better if certain else None,
    )


def _outside(spec: Spec, targets: Sequence[str], legal: tuple[str, ...]) -> Iterator[Finding]:
    """Report targets that the model has, but not inside of `within`."""
    within = str(spec.get("lora.within") or "")
    inside = [one for one in targets if any(numbered(path, one, within) for path in legal)]
    outside = [one for one in targets if one not in inside and ends(one, legal)]
    if outside and contains(within, legal):  # XP466 reports a `within` that the model lacks
        yield Finding(
            spec.location("lora.targets"),
            f"{spec.model.name} has no module `{outside[0][:60]}` inside of `{within[:60]}`",
            write(f"targets = [{', '.join(inside)}]", ", or leave `within` out") if inside else "leave `within` out",
            (spec.label("lora.within"),),
        )


def _better(spec: Spec, targets: Sequence[str], kept: list[str], legal: tuple[str, ...]) -> tuple[str, bool]:
    """Return a pair: the text `targets = [...]` to suggest, and whether every wrong name has a likely correction, such
    as `q_proj` for `Q_PROJ`. If a wrong name has no likely correction, the text has only those names of `targets` that
    are legal. "" if no name is legal.
    """
    from xpc.compiler.suggest.likeness import likely_modules  # imported here, because only a wrong target needs it

    intended = [(one,) if one in kept else likely_modules(one, legal) for one in targets]
    names = list(dict.fromkeys(name for found in intended for name in found)) if all(intended) else kept
    if not names or _half(spec, names):
        return "", False
    return f"targets = [{', '.join(names)}]", all(intended)


def _has_its_own_rule(spec: Spec, target: str, known: Mapping[str, str]) -> bool:
    """Whether another rule already refuses the target with a more exact reason: XP462 (state spaces) or XP465 (layers
    that are not linear).
    """
    family, last = spec.model.model_type, target.rpartition(".")[2]
    if not spec.low_rank:
        return (family in CONVOLUTIONS or last in EMBEDDINGS) and ends(target, paths(known, LORA))
    return family in STATE_SPACES and last in READ_BY_THE_KERNEL


def _half(spec: Spec, targets: list[str]) -> bool:
    """Whether `targets` names only one of two modules of the experts, the gate projection or the up projection. The
    rule XP461 refuses this, because the two are one parameter.
    """
    pair = names(spec.stack, spec.model.model_type)[:2]
    return spec.low_rank and len({one.rpartition(".")[2] for one in targets} & {*pair}) == 1


@rule("XP456", "adapter-of-no-effect")
def no_effect(spec: Spec) -> Iterator[Finding]:
    """An adapter needs an `alpha` above 0, a `dropout` below 1 and an `lr_ratio` above 0. An alpha of 0 scales the
    adapter's output by 0. A dropout of 1 sets the adapter's input to 0. A rate ratio of 0 gives the B matrices, which
    start at zero, a learning rate of 0.

    Why it is bad: the run trains nothing.

    Without this rule: nothing is reported. The saved adapter is the initial adapter, which has no effect on the model.

    Source: peft 0.21 `tuners/lora/layer.py`; confirmed by running it.
    """
    for name, wrong in (("alpha", 0), ("dropout", 1), ("lr_ratio", 0)):
        path = path_of(f"lora.{name}")
        if spec.get(path) == wrong:
            yield Finding(
                spec.location(path, "the adapter has no effect"),
                f"`{name} = {wrong}` trains nothing",
                f"leave `{name}` out",
            )


@rule("XP457", "moving-reference-of-adapters")
def sync_with_adapter(spec: Spec) -> Iterator[Finding]:
    """`sync_reference` cannot be combined with adapters. With adapters, the reference is the trained model with its
    adapters switched off, or with a copy of the adapter that the run continues. TRL updates only a separate reference
    model, and there is none.

    Why it is bad: the reference would never change.

    Without this rule: trl 1.16 raises NotImplementedError and dpo of trl 0.18 ValueError, both in the trainer's
    constructor after the data is tokenized. grpo of trl 0.18 silently updates nothing.

    Source: `dpo_trainer.py`, `kto_trainer.py`, `grpo_trainer.py` of trl 1.16 and 0.18; confirmed by running it.
    """
    if spec.flag("method.sync_reference"):
        yield Finding(
            spec.location("method.sync_reference", "the setting updates a copy of the model"),
            "with adapters there is no copy of the reference to update",
            "leave `sync_reference` out, or train all weights",
            (spec.label("lora") or spec.label("qlora"),),
        )


@rule("XP458", "rank-above-the-width", "warning")
def rank_above_width(spec: Spec) -> Iterator[Finding]:
    """The rank of an adapter should not exceed the model's width (hidden size). An adapter of a higher rank has more
    weights than the layer that it adapts.

    Why it is bad: the product of an adapter's two matrices has the shape of the layer's weight, so the rank of this
    product cannot exceed the shorter side of the weight. A higher `rank` costs memory and adds nothing.

    Without this rule: nothing is reported; an adapter of any rank trains.

    Source: arXiv 2106.09685.
    """
    facts, rank = spec.model.facts, spec.get("lora.rank")
    if facts is not None and isinstance(rank, int) and rank > facts.hidden and spec.low_rank:
        yield Finding(
            spec.location("lora.rank", f"{spec.model.name} is {facts.hidden:,} wide"),
            f"adapters of rank {rank:,} are larger than the layers that they adapt",
            write("rank = 16", ", or leave `lora` out"),
        )


@rule("XP459", "reentrant-forced", "warning")
def reentrant_forced(spec: Spec) -> Iterator[Finding]:
    """Adapters under ZeRO-3 always train with reentrant checkpointing: trl 1.16 switches it on, even if the spec
    switches it off.

    Why it is bad: the run uses reentrant checkpointing although the spec states `reentrant = false`.

    Without this rule: trl only writes a warning to the log.

    Source: trl 1.16 `sft_trainer.py`, `dpo_trainer.py` and the other trainers; confirmed by running it.
    """
    path: FlagPath = "memory.checkpointing.reentrant"
    forced = spec.zero_stage == 3 and spec.flag("memory.checkpointing") and spec.stack.facts.zero3_adapters_reentrant
    if forced and spec.written(path) and not spec.flag(path):
        yield Finding(
            spec.location(path, "set to true by trl"),
            "adapters under zero3 always use reentrant checkpointing",
            "write `reentrant = true`, or `strategy zero2`",
            (spec.label("strategy", "the strategy"),),
        )
