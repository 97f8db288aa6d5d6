"""Rules about adapters on layers that are not plain linear layers: stacked experts, state spaces (XP184, XP460 to
XP463, XP473, XP479, XP484, XP625).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.registry.linear_layers import HEADS
from xpc.compiler.rules.core.conditions import adapters
from xpc.compiler.rules.core.modules import EMBEDDINGS
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.optimizer.requirements import CONVOLUTIONS
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.compiler.stacks.fused_experts import adapted, expert_parameters, names
from xpc.compiler.stacks.modules import LORA, OFT, ends, modules, paths

WHEN = adapters

STATE_SPACES = {
    "falcon_h1": "q_proj, k_proj, v_proj, o_proj",
    "falcon_mamba": "in_proj, x_proj",
    "mamba": "in_proj, x_proj",
    "mamba2": "in_proj",
    "nemotron_h": "q_proj, k_proj, v_proj, o_proj",
}
"""Maps each family with state-space layers to those modules of these layers that can have an adapter. On any other
module of these layers, the layer's kernel would ignore the adapter.
"""
READ_BY_THE_KERNEL = ("out_proj", "conv1d")


def adaptable(spec: Spec) -> str:
    """The mark of those modules in modules.json (compiler/stacks) that can have the run's kind of adapters. For LoRA,
    and for VeRA in models with Conv1D layers such as GPT-2, the mark is `LORA`. For any other kind of adapters it is
    `OFT`, which only linear layers have.
    """
    return LORA if spec.low_rank or (spec.flag("vera") and spec.model.model_type in CONVOLUTIONS) else OFT


@rule("XP460", "dropout-over-fused-experts")
def dropout_of_experts(spec: Spec) -> Iterator[Finding]:
    """An adapter on the experts of a mixture cannot have dropout, because transformers 5 keeps the experts as one
    stacked parameter. If `dropout` is not set, it is 0 for such adapters.

    Why it is bad: the run cannot start if adapters on the experts have dropout.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: peft 0.21 `tuners/lora/layer.py` `ParamWrapper`; confirmed by running it on each family of the registry.
    """
    kind, targets = spec.model.model_type, spec.get("lora.targets")
    layers = adapted(spec.stack, kind, targets)
    named = spec.names("lora.parameters")
    if (layers or named) and spec.low_rank and spec.real("lora.dropout") > 0:
        what = f"`{layers[0]}` is" if layers and isinstance(targets, tuple) else "all-linear includes"
        if named:
            what = f"`{named[0][:60]}` is"
        yield Finding(
            spec.location("lora.dropout", f"{what} a stack of experts"),
            f"an adapter on the experts of {kind} cannot have dropout",
            write("dropout = 0"),
            (spec.label("lora.targets", "the modules"), spec.model.label),
        )


@rule("XP473", "dora-of-fused-experts")
def dora_of_experts(spec: Spec) -> Iterator[Finding]:
    """An adapter on the experts of a mixture cannot be DoRA: in transformers 5 the experts are one stacked parameter,
    for which DoRA's column norms are not defined.

    Why it is bad: the run cannot start with `dora`.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: peft 0.21 `tuners/lora/layer.py` `ParamWrapper`; confirmed by running it.
    """
    named = spec.names("lora.parameters")
    layers = adapted(spec.stack, spec.model.model_type, spec.get("lora.targets"))
    if spec.flag("lora.dora") and (named or layers):
        yield Finding(
            spec.location("lora.dora", f"`{(named or layers)[0][:60]}` is a stack of experts"),
            f"an adapter on the experts of {spec.model.model_type} cannot use dora",
            "leave `dora` out",
            (spec.label("lora.parameters") or spec.label("lora.targets", "the modules"), spec.model.label),
        )


@rule("XP184", "parameters-under-zero3")
def parameters_under_zero3(spec: Spec) -> Iterator[Finding]:
    """Before peft 0.21, adapters on `parameters` cannot be combined with ZeRO-3, because peft reads the shape of a
    parameter after ZeRO-3 has sharded it.

    Why it is bad: the run cannot start.

    Without this rule: IndexError "tuple index out of range" in the trainer's constructor, after the data is tokenized.

    Source: peft 0.17 and 0.18 `tuners/lora/layer.py` `ParamWrapper`, huggingface/peft#2916; confirmed by running it.
    """
    named = spec.names("lora.parameters")
    if named and spec.zero_stage == 3 and not spec.stack.facts.sharded_parameters:
        other = able(lambda one: one.facts.sharded_parameters)
        yield Finding(
            spec.location("lora.parameters", "a single parameter"),
            f"{spec.stack.name} cannot adapt `{named[0][:60]}` under zero3",
            f"write `strategy zero2`, or `target {other}`",
            (spec.label("strategy", "the strategy"), spec.label("target", "the target")),
        )


@rule("XP625", "parameter-of-a-target")
def parameter_of_target(spec: Spec) -> Iterator[Finding]:
    """`parameters` must not name the weight of a module that `targets` names, too. It must not name a bias or the
    weight of a norm either, because they are not matrices.

    Why it is bad: PEFT can adapt a weight or its module, but not both, and a low-rank adapter needs a matrix.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized. For a weight of one
    dimension, peft 0.17 and 0.18 raise IndexError "tuple index out of range".

    Source: peft 0.21, 0.18 and 0.17 `tuners/lora/model.py`, `tuners/lora/layer.py` (`ParamWrapper`); confirmed by
    running it.
    """
    named = spec.names("lora.parameters")
    for name in named:
        module, _, last = name.rpartition(".")
        owner = module.rpartition(".")[2]
        flat = last == "bias" or (last == "weight" and ("norm" in owner or owner.startswith("ln_")))
        if flat or (last == "weight" and _is_target(spec, module)):
            yield Finding(
                spec.location("lora.parameters", "has one dimension" if flat else f"`targets` adapts `{owner}`"),
                f"`{name[:60]}` cannot have an adapter"
                if flat
                else f"`{name[:60]}` cannot have an adapter: its module has one already",
                "leave `parameters` out" if len(named) == 1 else f"leave `{name[:60]}` out of `parameters`",
                (spec.label("lora.targets", "the modules"),),
            )
            return


def _is_target(spec: Spec, module: str) -> bool:
    """Whether the setting `targets` gives a module an adapter. `module` is the end of the module's path, such as
    `mlp.down_proj`.
    """
    targets = spec.get("lora.targets")
    if isinstance(targets, tuple):
        return any(f".{module}".endswith(f".{one}") or f".{one}".endswith(f".{module}") for one in targets)
    linear = paths(modules(spec.stack.name, spec.model.model_type), LORA)
    return ends(module, (path for path in linear if path.rpartition(".")[2] not in (*EMBEDDINGS, *HEADS)))


@rule("XP479", "dora-of-a-quantized-base")
def dora_of_quantized(spec: Spec) -> Iterator[Finding]:
    """DoRA cannot adapt a quantized base under ZeRO-3, and it cannot adapt an 8-bit base on a CPU. DoRA reads the
    weight of a layer without calling the layer. When a weight is read in this way, ZeRO-3 expects that it has sharded
    this weight, but it does not shard quantized weights.

    Why it is bad: the run fails in its first steps.

    Without this rule: under ZeRO-3, AttributeError "'Params4bit' object has no attribute 'ds_status'" in the first
    backward pass. On a CPU, peft reads an 8-bit weight and then calls `weight.to("cpu")`. This call loses the scales of
    the weight, and the next forward pass raises AttributeError.

    Source: peft 0.21 `tuners/lora/dora.py`, `utils/integrations.py` (`dequantize_module_weight`), deepspeed 0.19.8
    `runtime/zero/partitioned_param_coordinator.py`; confirmed by running it.
    """
    if spec.flag("lora.dora") and spec.bits == 8 and spec.on_cpu:
        yield Finding(
            spec.location("lora.dora", "reads the base's weights"),
            "dora makes an 8-bit base lose its scales on a CPU",
            "leave `dora` out, or write `bits = 4`",
            (spec.label("lora.bits"), spec.label("hardware")),
        )
    elif spec.flag("lora.dora") and spec.bits and spec.zero_stage == 3:
        yield Finding(
            spec.location("lora.dora", "reads the base's weights"),
            f"zero3 cannot handle the {spec.bits}-bit weights that dora reads",
            "leave `dora` out, or write `strategy zero2`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP463", "experts-that-stay-whole", "warning")
def unpacked_experts(spec: Spec) -> Iterator[Finding]:
    """On transformers 5, `qlora` and `bits` do not quantize the experts of a mixture, because the experts are one
    stacked parameter, and bitsandbytes quantizes only linear layers.

    Why it is bad: the experts are most of the model. In Qwen3 30B A3B, 28.9 of 30.5 billion weights stay in half
    precision and take 54 GiB, not 15 GiB.

    Without this rule: nothing is reported, and the run does not fit or needs one more GPU.

    Source: transformers 5.23 `integrations/bitsandbytes.py` (`replace_with_bnb_linear`); confirmed by running it.
    """
    kind, facts = spec.model.model_type, spec.model.facts
    if not spec.bits or not names(spec.stack, kind):
        return
    share = (
        "" if facts is None else f": {expert_parameters(facts) / 1e9:.3g} of {facts.params / 1e9:.3g} billion weights"
    )
    other = able(lambda one: not names(one, kind))
    yield Finding(
        spec.location("lora.bits", f"quantizes the linear layers to {spec.bits} bits"),
        f"the experts of {kind} are not linear layers and stay in {spec.text('model.dtype')}{share}",
        f"write `target {other}`, which quantizes the experts",
        (spec.model.label,),
    )


@rule("XP461", "half-of-a-fused-pair")
def half_of_a_pair(spec: Spec) -> Iterator[Finding]:
    """The gate and up projections of an expert must be adapted together: if one of them has an adapter, the other must
    have one, too. transformers 5 keeps both in one parameter.

    Why it is bad: the run cannot start if only the gate or only the up projection is adapted.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: peft 0.21 `utils/transformers_weight_conversion.py`; confirmed by running it.
    """
    targets = spec.names("lora.targets")
    if not targets or not spec.low_rank:
        return
    pair = names(spec.stack, spec.model.model_type)[:2]
    there = [name for name in pair if name in adapted(spec.stack, spec.model.model_type, targets)]
    if len(there) == 1:
        other = next(name for name in pair if name not in there)
        every = ", ".join((*targets, other))
        yield Finding(
            spec.location("lora.targets", f"`{there[0]}` and `{other}` are one parameter"),
            f"an adapter on `{there[0]}` needs another on `{other}`",
            write(f"targets = [{every}]"),
            (spec.model.label,),
        )


@rule("XP462", "adapter-of-a-state-space")
def state_space(spec: Spec) -> Iterator[Finding]:
    """A state-space layer cannot have an adapter on `out_proj` or `conv1d`: the layer's kernel reads the weights of
    these modules directly and bypasses the adapter. `all-linear` includes both modules.

    Why it is bad: an adapter on `out_proj` or `conv1d` would have no effect.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: peft 0.21 and 0.17.1 `tuners/tuners_utils.py`; confirmed by running it on each family.
    """
    legal, targets = STATE_SPACES.get(spec.model.model_type or ""), spec.names("lora.targets")
    if legal is None:
        return
    wrong: tuple[str, ...] = READ_BY_THE_KERNEL[:1]
    if targets:
        wrong = tuple(one for one in READ_BY_THE_KERNEL if one in {name.rpartition(".")[2] for name in targets})
    if wrong:
        yield Finding(
            spec.location("lora.targets", f"the kernel reads `{wrong[0]}` directly"),
            f"{spec.model.model_type} cannot have an adapter on `{wrong[0]}`",
            f"write `targets = [{legal}]`" + ("" if spec.written("lora.targets") else " in `lora`"),
            (spec.model.label,),
            f"targets = [{legal}]" if spec.written("lora.targets") else None,
        )


@rule("XP484", "base-that-is-not-packed")
def never_packed(spec: Spec) -> Iterator[Finding]:
    """`qlora` and `bits` need a model family with plain linear layers. transformers 5 quantizes only layers of the
    plain linear class, and Falcon's layers have a class of their own.

    Why it is bad: each weight of the base takes 16 or 32 bits of memory instead of 4 or 8.

    Without this rule: the base silently stays in 16 or 32 bits.

    Source: transformers 5.23 `integrations/bitsandbytes.py` (`replace_with_bnb_linear`),
    `models/falcon/modeling_falcon.py` (`FalconLinear`); confirmed by running it. transformers 4 quantizes Falcon's
    layers as well.
    """
    if spec.bits and spec.model.model_type in spec.stack.facts.never_packed:
        other = able(lambda one: spec.model.model_type not in one.facts.never_packed)
        written = spec.written("lora.bits")
        yield Finding(
            spec.location("lora.bits" if written else "qlora", "no layer would be quantized"),
            f"{spec.stack.name} cannot quantize {spec.model.model_type} to {spec.bits} bits",
            ("leave `bits` out" if written else "write `lora` instead") + f", or write `target {other}`",
            (spec.model.label, spec.label("target", "the target")),
        )
