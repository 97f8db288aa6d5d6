"""Rules about attention implementations: whether the hardware, the target and the model's family support them (XP31x,
XP34x).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, gcd

from xpc.compiler import registry
from xpc.compiler.language.schema import path_of
from xpc.compiler.rules.core.families import FLASH, has_attention, presumed_family, presumed_hint, presumed_type
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able, every

FIXED_POSITIONS = ("codegen", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "mpt", "opt")
"""Families that look up positions in a table with as many entries as the context has tokens. Longer rows raise an
error. tests/stacks/test_stack_families.py tests these families.
"""


def _legal(spec: Spec) -> str:
    """The kind of attention to suggest: the family supports it on this target, and it runs on any hardware."""
    return "sdpa" if has_attention(spec, "sdpa") else "eager"


@rule("XP314", "flash-without-the-hardware")
def flash_hardware(spec: Spec) -> Iterator[Finding]:
    """Flash attention needs a GPU of compute capability 8.0 or later, and a model in fp16 or bf16. flash3 does not run
    on Blackwell.

    Why it is bad: flash attention has no kernels for older GPUs or for fp32. FlashAttention-3 has kernels only for
    Ampere, Ada and Hopper (capability 8.x and 9.x).

    Without this rule: transformers does not check the capability for flash2, and the kernel raises an error at the
    first forward pass. For fp32, transformers warns before that error. flash3 on Blackwell ends with "no kernel image"
    or an invalid argument.

    Source: transformers 5.23 `modeling_flash_attention_utils.py`; flash-attention issues 1049, 1889 and 1987.
    """
    attn, gpu = spec.text("model.attn"), spec.hardware.gpu
    if attn not in FLASH:
        return
    location, legal = spec.location("model.attn"), _legal(spec)
    related = (spec.label("hardware", "the hardware"),)
    word = location.typed
    if gpu is None:
        message = f"{attn} cannot run on the CPU"
        yield Finding(location, message, f"write `attn = {legal}`", related, word.replace(attn, legal))
    elif gpu.capability < (8, 0) or (attn == "flash3" and gpu.capability >= (10, 0)):
        needs = "needs 8.0" if gpu.capability < (8, 0) else "has kernels up to 9.x"
        fact = f"{gpu.name} has compute capability {gpu.compute_capability}; {attn} {needs}"
        other = legal if gpu.capability < (8, 0) or not has_attention(spec, "flash2") else "flash2"
        yield Finding(
            spec.location("model.attn", fact),
            f"{attn} cannot run on {gpu.name}",
            f"write `attn = {other}`",
            related,
            word.replace(attn, other),
        )
    elif spec.text("precision") == "fp32":
        yield Finding(
            location,
            f"{attn} has no fp32 kernel",
            f"write `precision bf16`, or `attn = {legal}`",
            (spec.label("precision", "the precision"),),
            word.replace(attn, legal),
        )


@rule("XP315", "attention-not-in-the-family", reads=("method.teacher",))
def attention_family(spec: Spec) -> Iterator[Finding]:
    """The families of the model and its teacher must support the chosen attention implementation (`attn`), which is the
    same for both. For a model outside of the registry, the family is guessed from the name, as for
    `openai/gpt-oss-safeguard-20b`.

    Why it is bad: without support, the model cannot be loaded, or computes wrong values. Three examples: gpt_oss
    declares flash attention, but needs a kernel from the Hub that bundles do not install. In transformers 4.52, sdpa
    drops the soft cap of gemma2's attention. On trl-0.24, 14 families (opt, falcon, stablelm, qwen2_moe, ...) do not
    support flash3.

    Without this rule: loading the model fails, minutes after the launch; gemma2 with sdpa is silently wrong (logits off
    by 2.5); opt with flash3 raises IndexError at the first step.

    Source: transformers 5.23 and 4.52.3 `_supports_sdpa`, `_supports_flash_attn`, `_supports_flex_attn` of each family,
    `modeling_utils.py`; confirmed by running it.
    """
    location, attn, legal = spec.location("model.attn"), spec.text("model.attn"), _legal(spec)
    for model in () if attn == "eager" else spec.models:
        known = presumed_family(spec, model)
        if known is not None and attn not in known.attention:
            yield Finding(
                location,
                f"{known.model_type} has no {attn} attention" + (" that computes correctly" if attn == "sdpa" else ""),
                f"write `attn = {legal}`{presumed_hint(spec, model)}",
                (model.label,),
                location.typed.replace(attn, legal) if spec.written("model.attn") else None,
            )
            return


@rule("XP316", "flex-on-cpu")
def flex_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Flex attention cannot train on a CPU.

    Why it is bad: flex attention has no backward pass on a CPU.

    Without this rule: NotImplementedError at the first step.

    Source: torch 2.13 `flex_attention.py`; confirmed by running it.
    """
    if spec.on_cpu and spec.text("model.attn") == "flex":
        location, legal = spec.location("model.attn"), _legal(spec)
        yield Finding(
            location,
            "flex attention cannot train on the CPU",
            f"write `attn = {legal}`",
            (spec.label("hardware", "the hardware"),),
            location.typed.replace("flex", legal),
        )


@rule("XP336", "flex-before-volta")
def flex_before_volta(spec: Spec) -> Iterator[Finding]:
    """Flex attention needs a GPU of compute capability 7.0 or later.

    Why it is bad: torch compiles flex attention, and its compiler makes kernels only for capability 7.0 and later.

    Without this rule: GPUTooOldForTriton at the first step.

    Source: transformers 5.23 and 4.52.3 `integrations/flex_attention.py` (`torch.compile`), torch 2.13
    `_dynamo/device_interface.py`.
    """
    gpu = spec.hardware.gpu
    if spec.text("model.attn") == "flex" and gpu is not None and gpu.capability < (7, 0):
        location, legal = spec.location("model.attn", f"{gpu.name} has compute capability 6.x"), _legal(spec)
        yield Finding(
            location,
            f"flex attention cannot run on {gpu.name}",
            f"write `attn = {legal}`",
            (spec.label("hardware", "the GPU"),),
            location.typed.replace("flex", legal),
        )


@rule("XP319", "past-the-context", "warning", reads=("method.teacher",))
def past_the_context(spec: Spec) -> Iterator[Finding]:
    """Sequences should not be longer than the context of the model or its teacher, even after padding by
    `pad_to_multiple_of`. This rule warns; for families that look up positions in a table (gpt2, opt, gptj, mpt and
    others), it reports an error.

    Why it is bad: the model has never seen positions beyond its context, and a table of positions has no entries for
    them.

    Without this rule: nothing is reported and the run trains on positions beyond the context; families with a table
    raise IndexError at the first longer row.

    Source: trl and transformers do not check it; confirmed by running it: 1802 tokens train on a model for 512 tokens
    with a finite loss. A row longer than the table was also tried on every family of transformers 5.23 and 4.52 that
    has a table of learned positions.
    """
    known = [one.facts for one in spec.models if one.facts is not None and one.facts.context]
    if not known:
        return
    facts, seq = min(known, key=lambda one: one.context), spec.integer("batch.seq")
    fixed = facts.model_type in FIXED_POSITIONS
    multiple = spec.extra_value("trl", "pad_to_multiple_of")
    padded = -(-seq // multiple) * multiple if isinstance(multiple, int) and multiple > 0 else seq
    end = ", and has no positions beyond it" if fixed else ""
    context = f"{facts.alias} has a context of {facts.context}{end}"
    if seq > facts.context:
        if spec.online:
            yield from _long_rollouts(spec, seq, facts.context, context, fixed)
            return
        yield Finding(
            spec.location("batch.seq", context),
            f"sequences of {seq} tokens are longer than the model's context",
            f"write `seq = {facts.context}`{_or_scaled(spec, seq / facts.context)}",
            replace=f"seq = {facts.context}" if spec.written("batch.seq") else None,
            severity="error" if fixed else None,
        )
    elif fixed and padded > facts.context:
        yield Finding(
            spec.extra_location("trl", "pad_to_multiple_of", context),
            f"sequences of {seq} tokens are padded to {padded}, more than the model's context",
            write(f"pad_to_multiple_of = {gcd(facts.context, 8)}"),
            (spec.label("batch.seq", "the longest sequence"),),
            severity="error",
        )


def _or_scaled(spec: Spec, times: float) -> str:
    """The end of a help text. It proposes to scale the positions if the model and the run allow this, and is otherwise
    empty.
    """
    from xpc.compiler.rules.numerics.rope import own_scaling

    scalable = spec.model.model_type in spec.stack.facts.scaled_families and own_scaling(spec) is None
    if not scalable or spec.rope is not None or (spec.lora and not spec.flag("save.merge")):
        return ""
    return f", or scale the positions: `model(rope=yarn(factor={ceil(times)}))`"


def _long_rollouts(spec: Spec, seq: int, limit: int, context: str, fixed: bool) -> Iterator[Finding]:
    """Report that a prompt and its completion may together be longer than the context. This check is for methods that
    limit prompts and completions separately, and not with `seq`. The help suggests to lower the larger of the two
    limits.

    If the spec does not limit prompts, they may be short. So the finding is an error only if a completion alone can
    fill the context. If it cannot, the finding is a warning, and is yielded only for families with a table of
    positions.
    """
    completion = spec.integer("method.max_completion")
    prompt = seq - completion  # the limit for prompts that the spec states, or else the default limit
    if not spec.written("method.max_prompt"):
        location = spec.location("method.max_completion", context)
        if completion >= limit:
            message = f"completions of {completion} tokens leave no room for a prompt in the model's context"
            shorter = f"max_completion = {limit - prompt if prompt < limit else limit // 2}"
            edited = shorter if spec.written("method.max_completion") else None
            yield Finding(location, message, f"write `{shorter}`", (), edited, "error" if fixed else None)
        elif fixed:
            message = (
                f"completions of {completion} tokens leave {limit - completion} tokens of the context for a prompt"
            )
            yield Finding(location, message, f"write `max_prompt = {limit - completion}` if a prompt may be longer")
        return
    name, rest = ("max_completion", prompt) if completion >= prompt else ("max_prompt", completion)
    if rest >= limit:
        name, help = "max_completion", f"write `max_prompt = {limit // 2}` and `max_completion = {limit - limit // 2}`"
        edit = None
    else:
        edit = f"{name} = {limit - rest}"
        help = f"write `{edit}`"
    path = path_of(f"method.{name}")
    typed_with = (spec.label("method.max_prompt", f"{prompt} + {completion} = {seq}"),) if name != "max_prompt" else ()
    yield Finding(
        spec.location(path, context),
        f"a prompt of {prompt} and a completion of {completion} tokens are together longer than the model's context",
        help,
        typed_with,
        edit if spec.written(path) else None,
        "error" if fixed else None,
    )


@rule("XP340", "attention-not-in-the-target")
def attention_target(spec: Spec) -> Iterator[Finding]:
    """The transformers of the chosen stack (`target`) must implement the attention (`attn`): transformers 4.52 lacks
    flash3.

    Why it is bad: a model cannot be loaded with an attention that its transformers does not implement.

    Without this rule: ValueError when the model is loaded.

    Source: transformers 4.52.3 `modeling_utils.py` `ALL_ATTENTION_FUNCTIONS`; confirmed by running it.
    """
    attn, legal = spec.text("model.attn"), spec.stack.facts.attentions
    if attn not in legal:
        location = spec.location("model.attn")
        other = "flash2" if attn in FLASH and has_attention(spec, "flash2") else _legal(spec)
        yield Finding(
            location,
            f"{spec.stack.name} has no {attn}",
            f"write `attn = {other}`",
            (spec.label("target", "the target"),),
            location.typed.replace(attn, other),
        )


@rule("XP341", "dropout-of-flash3", "warning")
def flash3_dropout(spec: Spec) -> Iterator[Finding]:
    """A model with attention dropout in its configuration should not use flash3.

    Why it is bad: FlashAttention-3 has no dropout, so the model trains without it.

    Without this rule: transformers only writes a line to the log.

    Source: transformers 5.23 `modeling_utils.py` `_flash_attn_can_dispatch`.
    """
    share = spec.model.config.get("attention_dropout")
    if spec.text("model.attn") == "flash3" and isinstance(share, int | float) and share > 0:
        location = spec.location("model.attn", f"attention_dropout is {share:g} in {spec.model.known_from}")
        yield Finding(
            location,
            "flash3 ignores the model's attention dropout",
            "write `attn = flash2`",
            (spec.model.label,),
            location.typed.replace("flash3", "flash2"),
        )


@rule("XP342", "family-not-in-the-target", reads=("method.teacher",))
def family_target(spec: Spec) -> Iterator[Finding]:
    """The transformers of the chosen stack (`target`) must know the family (`model_type` in config.json) of the model
    and its teacher. If the spec sets `trust_remote_code`, this rule does not check the model's family, because the
    model's own code may define it; a teacher's own code never runs. For a model outside of the registry, the family is
    guessed from its name.

    Why it is bad: an older transformers cannot build a newer family.

    Without this rule: ValueError when the configuration is read.

    Source: transformers 5.23.0 and 4.52.3 `CONFIG_MAPPING`; confirmed by running them.
    """
    for model in spec.models:
        kind, own_code = presumed_type(model), spec.flag("model.trust_remote_code") and model is spec.model
        if kind is None or own_code or not spec.stack.lacks_family(kind):
            continue
        own = "name another teacher"
        if model is spec.model:
            own = "if the model brings its own code, write `trust_remote_code` in `model`"
        yield Finding(
            model.label,
            f"transformers on {spec.stack.name} does not know {kind[:80] or 'an empty model_type'}",
            _with_family(kind, own) + presumed_hint(spec, model),
            (spec.label("target", "the target"),),
        )


def _with_family(kind: str, otherwise: str) -> str:
    """The help that names a target whose transformers knows a family. If no target knows it, the help says `otherwise`,
    after the version of transformers with which the family came.
    """
    if not all(one.lacks_family(kind) for one in every()):
        return f"write `target {able(lambda one: not one.lacks_family(kind))}`"
    version = registry.newer_family(kind)
    why = f"the family came with transformers {version}, which no target has" if version else "no target knows it"
    return f"{why}; {otherwise}"


@rule("XP343", "family-without-the-fused-head")
def fused_head(spec: Spec) -> Iterator[Finding]:
    """The model's family must work with the fused output head from which TRL 1.16 computes the loss.

    Why it is bad: the fused head needs the model without its output head, but llama4_text returns the complete model.
    If the experts' balancing loss is on, the fused head also needs `num_experts` and a router: granitemoe, phimoe and
    others have no `num_experts`, and a dense doge has no router. The balancing loss is on if its coefficient is not 0.
    Families such as deepseek_v3 and glm4_moe have no default coefficient, so their balancing loss is on only if the
    spec states one.

    Without this rule: AttributeError (for doge, IndexError) at the first step.

    Source: trl 1.16 `trainer/utils.py` `add_fused_lm_head`; confirmed by running it on every family of the registry.
    """
    if spec.method.head != "fused":
        return
    kind = spec.model.model_type
    if kind in spec.stack.facts.fused_head_fails:
        other = able(lambda one: kind not in one.facts.fused_head_fails and not one.lacks_family(kind))
        yield Finding(
            spec.model.label, f"the trainer on {spec.stack.name} cannot train {kind}", f"write `target {other}`"
        )
    elif kind in (*spec.stack.facts.router_loss_fails, *spec.stack.facts.router_loss_fails_if_stated):
        weight = spec.extra_value("trl", "router_aux_loss_coef")
        own = spec.model.config.get("router_aux_loss_coef")
        if own is None and kind in spec.stack.facts.router_loss_fails_if_stated:
            own = 0
        if weight == 0 or (weight is None and own == 0):
            return
        message, off = f"the trainer cannot compute the balancing loss of {kind}", "router_aux_loss_coef = 0.0"
        if weight is None:
            yield Finding(spec.model.label, message, f"write `{off}` in `extra trl`")
        else:
            location = spec.extra_location("trl", "router_aux_loss_coef")
            yield Finding(location, message, write(off), (spec.model.label,))


@rule("XP148", "family-without-its-experts")
def without_experts(spec: Spec) -> Iterator[Finding]:
    """A granitemoehybrid without experts, such as Granite 4.0 Micro, needs transformers 4.57 or newer: 4.52 computes
    each layer's router even without experts.

    Why it is bad: the forward pass fails.

    Without this rule: ValueError in the first step ("torch.cat(): expected a non-empty list of Tensors").

    Source: transformers 4.52 `modeling_granitemoehybrid.py`; confirmed by running it.
    """
    kind = spec.model.model_type
    if kind in spec.stack.facts.experts_required and spec.model.config.get("num_local_experts") == 0:
        other = able(lambda one: kind not in one.facts.experts_required and not one.lacks_family(kind))
        yield Finding(
            spec.model.label,
            f"transformers on {spec.stack.name} cannot run a {kind} without experts",
            f"write `target {other}`",
            (spec.label("target", "the target"),),
        )
