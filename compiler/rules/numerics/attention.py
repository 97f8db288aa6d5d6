"""The attention and the model's family against hardware and target (XP31x, XP34x)."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from xpc.compiler.language.schema import path_of
from xpc.compiler.rules.core.families import FLASH, by_name, has_attention, supposed
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

FIXED_POSITIONS = ("codegen", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "mpt", "opt")
"""Families that look positions up in a table of the context's length and raise beyond it; measured, family by family,
by tests/stacks/test_stack_families.py."""


def _legal(spec: Spec) -> str:
    """An attention that this family has here and that any hardware runs."""
    return "sdpa" if has_attention(spec, "sdpa") else "eager"


@rule("XP314", "flash-without-the-hardware")
def flash_hardware(spec: Spec) -> Iterator[Finding]:
    """Flash attention runs on GPUs of compute capability 8.0 or later, in fp16 or bf16; flash3 not on Blackwell.

    transformers does not check the capability for flash2: the kernel refuses at the first forward pass. In fp32 it
    only warns before the same refusal. FlashAttention-3 has kernels for Ampere, Ada and Hopper (capability 8.x and
    9.x) and ends with "no kernel image" or an invalid argument on Blackwell. Source: transformers 5.23
    `modeling_flash_attention_utils.py`; flash-attention issues 1049, 1889 and 1987.
    """
    attn, gpu = spec.text("model.attn"), spec.hardware.gpu
    if attn not in FLASH:
        return
    place, legal = spec.place("model.attn"), _legal(spec)
    related = (spec.label("hardware", "the hardware"),)
    word = place.typed
    if gpu is None:
        yield Finding(place, f"{attn} on the CPU", f"write `attn = {legal}`", related, word.replace(attn, legal))
    elif gpu.capability < (8, 0) or (attn == "flash3" and gpu.capability >= (10, 0)):
        needs = "needs 8.0" if gpu.capability < (8, 0) else "has kernels up to 9.x"
        fact = f"{gpu.name} has compute capability {gpu.compute_capability}; {attn} {needs}"
        other = legal if gpu.capability < (8, 0) or not has_attention(spec, "flash2") else "flash2"
        yield Finding(
            spec.place("model.attn", fact),
            f"{attn} on {gpu.name}",
            f"write `attn = {other}`",
            related,
            word.replace(attn, other),
        )
    elif spec.text("precision") == "fp32":
        yield Finding(
            place,
            f"{attn} has no fp32 kernel",
            f"write `precision bf16`, or `attn = {legal}`",
            (spec.label("precision", "the precision"),),
            word.replace(attn, legal),
        )


@rule("XP315", "attention-not-in-the-family")
def attention_family(spec: Spec) -> Iterator[Finding]:
    """Not every family implements every attention; transformers refuses at load, minutes after the launch.

    gpt_oss declares flash attention and is sent on to a kernel of the Hub, for which a bundle has no package; gemma2
    under transformers 4.52 loads sdpa, which leaves out its soft cap without a word (logits off by 2.5). Of a model
    that is not in the registry the family is read off its name, `openai/gpt-oss-20b` for one. Source: transformers 5.23
    and 4.52.3 `_supports_sdpa`, `_supports_flash_attn`, `_supports_flex_attn` of each family, `modeling_utils.py`;
    executed.
    """
    known, attn = supposed(spec), spec.text("model.attn")
    if known is None or has_attention(spec, attn):
        return
    place = spec.place("model.attn")
    legal = _legal(spec)
    yield Finding(
        place,
        f"{known.model_type} has no {attn} attention"
        + ("" if "sdpa" in known.attention or attn != "sdpa" else " that is right"),
        f"write `attn = {legal}`{by_name(spec)}",
        (spec.model.label,),
        place.typed.replace(attn, legal) if spec.written("model.attn") else None,
    )


@rule("XP316", "flex-on-cpu")
def flex_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Flex attention has no backward pass on the CPU: NotImplementedError at the first step.

    Source: torch 2.13 `flex_attention.py`; executed.
    """
    if spec.on_cpu and spec.text("model.attn") == "flex":
        place, legal = spec.place("model.attn"), _legal(spec)
        yield Finding(
            place,
            "flex attention cannot train on the CPU",
            f"write `attn = {legal}`",
            (spec.label("hardware", "the hardware"),),
            place.typed.replace("flex", legal),
        )


@rule("XP336", "flex-before-volta")
def flex_before_volta(spec: Spec) -> Iterator[Finding]:
    """Flex attention is compiled by torch, whose compiler makes kernels for GPUs of compute capability 7.0 or later.

    Today: GPUTooOldForTriton at the first step. Source: transformers 5.23 and 4.52.3 `integrations/flex_attention.py`
    (`torch.compile`), torch 2.13 `_dynamo/device_interface.py`.
    """
    gpu = spec.hardware.gpu
    if spec.text("model.attn") == "flex" and gpu is not None and gpu.capability < (7, 0):
        place, legal = spec.place("model.attn", f"{gpu.name} has compute capability 6.x"), _legal(spec)
        yield Finding(
            place,
            f"flex attention on {gpu.name}",
            f"write `attn = {legal}`",
            (spec.label("hardware", "the GPU"),),
            place.typed.replace("flex", legal),
        )


@rule("XP319", "past-the-context", "warning")
def past_the_context(spec: Spec) -> Iterator[Finding]:
    """Sequences longer than the model's context train without a message, on positions that it has never seen.

    A family that looks positions up in a table (gpt2, opt, gptj, mpt and others) has none beyond it and ends with an
    IndexError at the first longer row: that is an error, and so is a row that `pad_to_multiple_of` makes longer.
    Source: no check in trl or transformers; executed (1802 tokens on a 512-token model, finite loss; each such family
    of transformers 5.23 and 4.52 with a row longer than its table).
    """
    facts, seq = spec.model.facts, spec.integer("batch.seq")
    if facts is None or not facts.context:
        return
    fixed = facts.model_type in FIXED_POSITIONS
    multiple = spec.extra_value("trl", "pad_to_multiple_of")
    padded = -(-seq // multiple) * multiple if isinstance(multiple, int) and multiple > 0 else seq
    end = ", and has no positions beyond it" if fixed else ""
    context = f"{facts.alias} has a context of {facts.context}{end}"
    if seq > facts.context:
        if spec.online:
            yield _long_rollouts(spec, seq, facts.context, context, fixed)
            return
        yield Finding(
            spec.place("batch.seq", context),
            f"sequences of {seq} tokens pass the model's context",
            f"write `seq = {facts.context}`",
            replace=f"seq = {facts.context}" if spec.written("batch.seq") else None,
            severity="error" if fixed else None,
        )
    elif fixed and padded > facts.context:
        yield Finding(
            spec.extra_place("trl", "pad_to_multiple_of", context),
            f"sequences of {seq} tokens are padded to {padded}, past the model's context",
            write(f"pad_to_multiple_of = {gcd(facts.context, 8)}"),
            (spec.label("batch.seq", "the longest sequence"),),
            severity="error",
        )


def _long_rollouts(spec: Spec, seq: int, limit: int, context: str, fixed: bool) -> Finding:
    """Reinforcement has no `seq`: a prompt and its completion are bounded each, and the longer one is made shorter."""
    completion = spec.integer("method.max_completion")
    prompt = seq - completion  # as written, or the usual one where none is
    name, rest = ("max_completion", prompt) if completion >= prompt else ("max_prompt", completion)
    if rest >= limit:
        name, help = "max_completion", f"write `max_prompt = {limit // 2}` and `max_completion = {limit - limit // 2}`"
        form = None
    else:
        form = f"{name} = {limit - rest}"
        help = f"write `{form}`"
    path = path_of(f"method.{name}")
    typed_with = (spec.label("method.max_prompt", f"{prompt} + {completion} = {seq}"),) if name != "max_prompt" else ()
    return Finding(
        spec.place(path, context),
        f"prompts of {prompt} and completions of {completion} tokens pass the model's context together",
        help,
        typed_with,
        form if spec.written(path) else None,
        "error" if fixed else None,
    )


@rule("XP340", "attention-not-in-the-target")
def attention_target(spec: Spec) -> Iterator[Finding]:
    """transformers 4.52 knows no flash3: an attention that it has no function for is a ValueError at load.

    Source: transformers 4.52.3 `modeling_utils.py` `ALL_ATTENTION_FUNCTIONS`; executed.
    """
    attn, legal = spec.text("model.attn"), spec.stack.facts.attentions
    if attn not in legal:
        place = spec.place("model.attn")
        other = "flash2" if attn in FLASH and has_attention(spec, "flash2") else _legal(spec)
        yield Finding(
            place,
            f"{spec.stack.name} has no {attn}",
            f"write `attn = {other}`",
            (spec.label("target", "the target"),),
            place.typed.replace(attn, other),
        )


@rule("XP341", "dropout-of-flash3", "warning")
def flash3_dropout(spec: Spec) -> Iterator[Finding]:
    """FlashAttention-3 has no dropout: a model whose configuration asks for it trains without, after a log line.

    Source: transformers 5.23 `modeling_utils.py` `_flash_attn_can_dispatch`.
    """
    share = spec.model.config.get("attention_dropout")
    if spec.text("model.attn") == "flash3" and isinstance(share, int | float) and share > 0:
        place = spec.place("model.attn", f"attention_dropout is {share:g} in {spec.model.known_from}")
        yield Finding(
            place,
            "flash3 leaves out the model's attention dropout",
            "write `attn = flash2`",
            (spec.model.label,),
            place.typed.replace("flash3", "flash2"),
        )


@rule("XP342", "family-not-in-the-target")
def family_target(spec: Spec) -> Iterator[Finding]:
    """An older transformers does not know newer families: ValueError when the configuration is read.

    Code that comes with the model can bring the family along, so `trust_remote_code` is believed. Source: transformers
    4.52.3 `CONFIG_MAPPING`; executed.
    """
    if spec.stack.lacks_family(spec.model.model_type) and not spec.flag("model.trust_remote_code"):
        yield Finding(
            spec.model.label,
            f"the transformers of {spec.stack.name} does not know {spec.model.model_type}",
            f"write `target {able(lambda one: not one.lacks_family(spec.model.model_type))}`",
            (spec.label("target", "the target"),),
        )


@rule("XP343", "family-without-the-fused-head")
def fused_head(spec: Spec) -> Iterator[Finding]:
    """TRL 1.16 takes the loss from a head of its own, which some families break: AttributeError at the first step.

    llama4_text names the whole model its base model; granitemoe, granitemoehybrid and phimoe have no `num_experts` for
    the balancing loss, which is on where the coefficient is not zero. Source: trl 1.16 `trainer/utils.py`
    `add_fused_lm_head`; executed on every family of the registry.
    """
    if spec.method.head != "fused":
        return
    kind = spec.model.model_type
    if kind in spec.stack.facts.fused_head_fails:
        other = able(lambda one: kind not in one.facts.fused_head_fails and not one.lacks_family(kind))
        yield Finding(
            spec.model.label, f"the trainer of {spec.stack.name} cannot train {kind}", f"write `target {other}`"
        )
    elif kind in spec.stack.facts.router_loss_fails:
        weight = spec.extra_value("trl", "router_aux_loss_coef")
        own = spec.model.config.get("router_aux_loss_coef")
        if weight == 0 or (weight is None and own == 0):
            return
        yield Finding(
            spec.model.label,
            f"the trainer cannot take the balancing loss of {kind}",
            "write `router_aux_loss_coef = 0.0` in `extra trl`",
            (None if weight is None else spec.extra_place("trl", "router_aux_loss_coef", "asked for here"),),
        )
