"""Adapters of layers that are no plain linear layers: fused experts and state spaces (XP460 to XP463, XP473, XP484)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import adapters
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.compiler.stacks.fused_experts import adapted, expert_parameters, names

WHEN = adapters

STATE_SPACES = {
    "falcon_h1": "q_proj, k_proj, v_proj, o_proj",
    "falcon_mamba": "in_proj, x_proj",
    "mamba": "in_proj, x_proj",
    "mamba2": "in_proj",
    "nemotron_h": "q_proj, k_proj, v_proj, o_proj",
}
"""Families with state-space layers whose kernel reads weights past an adapter, and modules that can have one."""
READ_BY_THE_KERNEL = ("out_proj", "conv1d")


@rule("XP460", "dropout-over-fused-experts")
def dropout_of_experts(spec: Spec) -> Iterator[Finding]:
    """The experts of a mixture are one stacked parameter in transformers 5, and an adapter of it takes no dropout.

    Unset, the dropout is 0 there. Today: ValueError in the trainer's constructor, after the data is tokenized. Source:
    peft 0.21 `tuners/lora/layer.py` `ParamWrapper`; executed on each family of the registry.
    """
    kind, targets = spec.model.model_type, spec.get("lora.targets")
    layers = adapted(spec.stack, kind, targets)
    named = spec.names("lora.parameters")
    if (layers or named) and not spec.flag("oft") and spec.real("lora.dropout") > 0:
        what = f"`{layers[0]}` is" if layers and isinstance(targets, tuple) else "all-linear takes in what is"
        if named:
            what = f"`{named[0][:60]}` is"
        yield Finding(
            spec.place("lora.dropout", f"{what} a stack of experts"),
            f"an adapter of the experts of {kind} has no dropout",
            write("dropout = 0"),
            (spec.label("lora.targets", "the modules"), spec.model.label),
        )


@rule("XP473", "dora-of-fused-experts")
def dora_of_experts(spec: Spec) -> Iterator[Finding]:
    """The experts of a mixture are one stacked parameter in transformers 5, which has no columns of one weight.

    Today: ValueError in the trainer's constructor, after the data is tokenized. Source: peft 0.21
    `tuners/lora/layer.py` `ParamWrapper`; executed.
    """
    named = spec.names("lora.parameters")
    layers = adapted(spec.stack, spec.model.model_type, spec.get("lora.targets"))
    if spec.flag("lora.dora") and (named or layers):
        yield Finding(
            spec.place("lora.dora", f"`{(named or layers)[0][:60]}` is a stack of experts"),
            f"an adapter of the experts of {spec.model.model_type} has no dora",
            "leave `dora` out",
            (spec.label("lora.parameters") or spec.label("lora.targets", "the modules"), spec.model.label),
        )


@rule("XP479", "dora-of-a-quantized-base")
def dora_of_quantized(spec: Spec) -> Iterator[Finding]:
    """DoRA reads the weight of the base outside of its module, and ZeRO-3 takes it for one that it has shared out.

    ZeRO-3 does not share out a quantized base. Today: AttributeError "'Params4bit' object has no attribute 'ds_status'"
    in the first backward pass. On a CPU, where peft moves a weight back that it has read, 8 bits lose their scales, and
    the next forward pass raises AttributeError. Source: peft 0.21 `tuners/lora/dora.py`, `utils/integrations.py`
    (`dequantize_module_weight`), deepspeed 0.19.8 `runtime/zero/partitioned_param_coordinator.py`; executed.
    """
    if spec.flag("lora.dora") and spec.bits == 8 and spec.on_cpu:
        yield Finding(
            spec.place("lora.dora", "reads the base's weights"),
            "8 bits that dora reads lose their scales on a CPU",
            "leave `dora` out, or write `bits = 4`",
            (spec.label("lora.bits"), spec.label("hardware")),
        )
    elif spec.flag("lora.dora") and spec.bits and spec.zero_stage == 3:
        yield Finding(
            spec.place("lora.dora", "reads the base's weights"),
            f"zero3 does not know the weights of {spec.bits} bits that dora reads",
            "leave `dora` out, or write `strategy zero2`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP463", "experts-that-stay-whole", "warning")
def whole_experts(spec: Spec) -> Iterator[Finding]:
    """bitsandbytes packs linear layers, and the experts of a mixture are one stacked parameter in transformers 5.

    They are most of the model: of Qwen3 30B A3B 28.9 of 30.5 billion weights stay in half precision, 54 GiB and not 15.
    Today: no word, and a run that does not fit, or that needs a whole card more. Source: transformers 5.23
    `integrations/bitsandbytes.py` (`replace_with_bnb_linear`); executed.
    """
    kind, facts = spec.model.model_type, spec.model.facts
    if not spec.bits or not names(spec.stack, kind):
        return
    share = (
        "" if facts is None else f": {expert_parameters(facts) / 1e9:.3g} of {facts.params / 1e9:.3g} billion weights"
    )
    other = able(lambda one: not names(one, kind))
    yield Finding(
        spec.place("lora.bits", f"packs the linear layers to {spec.bits} bits"),
        f"the experts of {kind} are no linear layers, and stay in {spec.text('model.dtype')}{share}",
        f"write `target {other}`, where they are packed",
        (spec.model.label,),
    )


@rule("XP461", "half-of-a-fused-pair")
def half_of_a_pair(spec: Spec) -> Iterator[Finding]:
    """The gate and the up projection of an expert are one parameter in transformers 5, and are adapted together.

    Today: ValueError in the trainer's constructor, after the data is tokenized. Source: peft 0.21
    `utils/transformers_weight_conversion.py`; executed.
    """
    targets = spec.names("lora.targets")
    if not targets or spec.flag("oft"):
        return
    pair = names(spec.stack, spec.model.model_type)[:2]
    there = [name for name in pair if name in adapted(spec.stack, spec.model.model_type, targets)]
    if len(there) == 1:
        other = next(name for name in pair if name not in there)
        every = ", ".join((*targets, other))
        yield Finding(
            spec.place("lora.targets", f"`{there[0]}` and `{other}` are one parameter"),
            f"an adapter of `{there[0]}` without `{other}`",
            write(f"targets = [{every}]"),
            (spec.model.label,),
        )


@rule("XP462", "adapter-of-a-state-space")
def state_space(spec: Spec) -> Iterator[Finding]:
    """The kernel of a state-space layer reads the weights of `out_proj` and `conv1d` itself, past an adapter on them.

    all-linear names them, too. Today: ValueError in the trainer's constructor, after the data is tokenized. Source:
    peft 0.21 and 0.17.1 `tuners/tuners_utils.py`; executed on each family.
    """
    legal, targets = STATE_SPACES.get(spec.model.model_type or ""), spec.names("lora.targets")
    if legal is None:
        return
    wrong: tuple[str, ...] = READ_BY_THE_KERNEL[:1]
    if targets:
        wrong = tuple(one for one in READ_BY_THE_KERNEL if one in {name.rpartition(".")[2] for name in targets})
    if wrong:
        yield Finding(
            spec.place("lora.targets", f"`{wrong[0]}` is read by the kernel"),
            f"{spec.model.model_type} cannot have an adapter on `{wrong[0]}`",
            f"write `targets = [{legal}]`" + ("" if spec.written("lora.targets") else " in `lora`"),
            (spec.model.label,),
            f"targets = [{legal}]" if spec.written("lora.targets") else None,
        )


@rule("XP484", "base-that-is-not-packed")
def never_packed(spec: Spec) -> Iterator[Finding]:
    """transformers 5 packs plain linear layers and no others; falcon's are of a class of their own.

    Today, silently: the base stays as it is, in 16 or 32 bits, and takes four times the memory. Source: transformers
    5.23 `integrations/bitsandbytes.py` (`replace_with_bnb_linear`), `models/falcon/modeling_falcon.py`
    (`FalconLinear`); executed. transformers 4 packs them.
    """
    if spec.bits and spec.model.model_type in spec.stack.facts.never_packed:
        other = able(lambda one: spec.model.model_type not in one.facts.never_packed)
        written = spec.written("lora.bits")
        yield Finding(
            spec.place("lora.bits" if written else "qlora", "nothing would be packed"),
            f"{spec.stack.name} cannot hold {spec.model.model_type} in {spec.bits} bits",
            ("leave `bits` out" if written else "write `lora` instead") + f", or write `target {other}`",
            (spec.model.label, spec.label("target", "the target")),
        )
