"""Attention and packing against hardware, model family and target (XP31x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.registry import Family
from xpc.compiler.rules.rule import Finding, rule, typed
from xpc.compiler.spec import Spec

FLASH = ("flash2", "flash3")


def family(spec: Spec) -> Family | None:
    """What is known of the model's family, or None."""
    return None if spec.model.facts is None else registry.find_family(spec.model.facts.model_type)


def mask_is_exact(spec: Spec) -> bool:
    """Whether the target's mask keeps packed documents of this model apart without a flash kernel."""
    known = family(spec)
    return spec.target.facts["isolate_mask"] is True and known is not None and known.packing == "exact"


@rule("XP310", "packing-without-flash")
def packing_without_flash(spec: Spec) -> Iterator[Finding]:
    """Packing puts several documents into one row; a flash kernel keeps them apart by their lengths.

    Other implementations build a mask over the whole row: exact for most families on trl-1.16, at a cost that grows
    with the square of the row, and silently wrong elsewhere. The spec has to say that it wants that:
    `packing(isolate=mask)`. Source: transformers 5.23 `masking_utils.py`; executed on 15 families.
    """
    attn = spec.text("model.attn")
    if not spec.flag("batch.packing") or attn in FLASH or spec.get("batch.packing.isolate") == "mask":
        return
    gpu = spec.hardware.gpu
    ways = []
    if mask_is_exact(spec):
        ways.append("`packing(isolate=mask)`, which is exact here and costs attention over the whole row")
    if gpu is not None and gpu.capability >= (8, 0) and spec.text("precision") != "fp32":
        ways.append("`attn = flash2`")
    place = spec.place("batch.packing", f"attention is {attn}, which does not see where documents end")
    word = typed(place)
    yield Finding(
        place,
        "packing without flash attention",
        "write " + " or ".join(ways) if ways else "leave `packing` out",
        (spec.label("model.attn", "the attention"),),
        "packing(isolate=mask)" if mask_is_exact(spec) and word == "packing" else None,
    )


@rule("XP311", "mask-not-exact")
def mask_not_exact(spec: Spec) -> Iterator[Finding]:
    """`packing(isolate=mask)` is legal where the target's mask is known to be exact for the model's family.

    Families that ignore position ids or carry a state leak from one document into the next without a message: the
    error was up to 0.75 of a logit scale of 0.7. Source: transformers 5.23; executed (gpt_oss, opt, falcon, bloom, mpt,
    mamba, jamba and others).
    """
    if spec.get("batch.packing.isolate") != "mask" or not spec.flag("batch.packing"):
        return
    place = spec.place("batch.packing.isolate")
    if spec.text("model.attn") in FLASH:
        yield Finding(
            place,
            "`isolate = mask` with flash attention has no mask to build",
            "leave `isolate` out",
            (spec.label("model.attn", "the attention"),),
        )
    elif not mask_is_exact(spec):
        known = family(spec)
        why = (
            f"{spec.target.name} does not read position ids into its mask"
            if spec.target.facts["isolate_mask"] is not True
            else "the model's family is not known"
            if known is None
            else f"{known.model_type} is {known.packing}"
        )
        yield Finding(
            place, f"the mask does not keep documents apart: {why}", "leave `packing` out, or use flash attention"
        )


@rule("XP312", "wrapped-packing", "warning")
def wrapped_packing(spec: Spec) -> Iterator[Finding]:
    """`wrapped` cuts documents where a row ends and lets them attend to each other, whatever the attention.

    Source: trl 1.16 `data_utils.py` (no sequence lengths are produced); executed.
    """
    if spec.flag("batch.packing") and spec.get("batch.packing.strategy") == "wrapped":
        best = next((name for name in spec.target.packing if name != "wrapped"), None)
        written = spec.written("batch.packing.strategy")
        yield Finding(
            spec.place("batch.packing.strategy" if written else "batch.packing"),
            "`wrapped` lets documents attend to each other",
            f"write `strategy = {best}`" if best else f"{spec.target.name} packs no other way: leave `packing` out",
            (spec.label("target", "the target"),) if best is None else (),
            f"strategy = {best}" if best and written else None,
        )


@rule("XP313", "packing-strategy-of-another-target")
def packing_strategy(spec: Spec) -> Iterator[Finding]:
    """Each target packs in its own ways; an unknown name is accepted by the arguments and fails after tokenizing.

    Source: trl 1.16 and 0.18 `data_utils.pack_dataset`.
    """
    name = spec.get("batch.packing.strategy")
    legal = tuple(spec.target.packing)
    if spec.flag("batch.packing") and isinstance(name, str) and name not in legal:
        yield Finding(
            spec.place("batch.packing.strategy", f"{spec.target.name} has " + ", ".join(legal)),
            f"{spec.target.name} does not pack by `{name}`",
            f"write `strategy = {legal[0]}`",
            (spec.label("target", "the target"),),
            f"strategy = {legal[0]}",
        )


@rule("XP314", "flash-without-the-hardware")
def flash_hardware(spec: Spec) -> Iterator[Finding]:
    """Flash attention runs on GPUs of compute capability 8.0 or later (flash3: 9.0), in fp16 or bf16.

    transformers does not check the capability for flash2: the kernel refuses at the first forward pass. In fp32 it
    only warns before the same refusal. Source: transformers 5.23 `modeling_flash_attention_utils.py`.
    """
    attn, gpu = spec.text("model.attn"), spec.hardware.gpu
    if attn not in FLASH:
        return
    place = spec.place("model.attn")
    least = (8, 0) if attn == "flash2" else (9, 0)
    related = (spec.label("hardware", "the hardware"),)
    word = typed(place)
    if gpu is None:
        yield Finding(place, f"{attn} on the CPU", "write `attn = sdpa`", related, word.replace(attn, "sdpa"))
    elif gpu.capability < least:
        yield Finding(
            spec.place(
                "model.attn",
                f"{gpu.name} has compute capability {gpu.capability[0]}.{gpu.capability[1]}; "
                f"{attn} needs {least[0]}.{least[1]}",
            ),
            f"{attn} on {gpu.name}",
            "write `attn = sdpa`",
            related,
            word.replace(attn, "sdpa"),
        )
    elif spec.text("precision") == "fp32":
        yield Finding(
            place,
            f"{attn} has no fp32 kernel",
            "write `precision bf16`, or `attn = sdpa`",
            (spec.label("precision", "the precision"),),
            word.replace(attn, "sdpa"),
        )


@rule("XP315", "attention-not-in-the-family")
def attention_family(spec: Spec) -> Iterator[Finding]:
    """Not every family implements every attention; transformers refuses at load, minutes after the launch.

    Source: transformers 5.23 `_supports_sdpa`, `_supports_flash_attn`, `_supports_flex_attn` of each family.
    """
    known, attn = family(spec), spec.text("model.attn")
    if known is None:
        return
    has = {"sdpa": known.sdpa, "flash2": known.flash, "flash3": known.flash, "flex": known.flex}.get(attn, True)
    if not has:
        place = spec.place("model.attn")
        word = typed(place)
        yield Finding(
            place,
            f"{known.model_type} has no {attn} attention",
            "write `attn = eager`",
            (spec.model.label,),
            word.replace(attn, "eager") if spec.written("model.attn") else None,
        )


@rule("XP316", "flex-on-cpu")
def flex_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Flex attention has no backward pass on the CPU: NotImplementedError at the first step.

    Source: torch 2.13 `flex_attention.py`; executed.
    """
    if spec.on_cpu and spec.text("model.attn") == "flex":
        yield Finding(
            spec.place("model.attn"),
            "flex attention cannot train on the CPU",
            "write `attn = sdpa`",
            (spec.label("hardware"),),
        )


@rule("XP317", "padding-free-with-a-length")
def padding_free_with_length(spec: Spec) -> Iterator[Finding]:
    """trl-1.16 does not cut rows when `padding_free` is on without packing, so a written `seq` would not hold.

    Today: ValueError after the model is loaded. Source: trl 1.16 `sft_trainer.py`; executed.
    """
    if not spec.flag("batch.padding_free") or spec.flag("batch.packing"):
        return
    if spec.target.facts["padding_free_needs_no_max_length"] and spec.written("batch.seq"):
        yield Finding(
            spec.place("batch.seq", "not enforced"),
            "`padding_free` does not cut rows at `seq`",
            "leave `seq` out, or pack",
            (spec.label("batch.padding_free", "padding_free"),),
        )


@rule("XP318", "padding-free-without-flash")
def padding_free_without_flash(spec: Spec) -> Iterator[Finding]:
    """`padding_free` flattens a micro-batch into one row, so the same isolation is needed as for packing.

    Source: trl 0.18 `sft_trainer.py` (a warning), transformers 5.23 `masking_utils.py`.
    """
    if spec.flag("batch.padding_free") and spec.text("model.attn") not in FLASH and not mask_is_exact(spec):
        yield Finding(
            spec.place("batch.padding_free", f"attention is {spec.text('model.attn')}"),
            "`padding_free` without flash attention lets rows attend to each other",
            "leave `padding_free` out",
            (spec.label("model.attn", "the attention"),),
        )


@rule("XP319", "past-the-context", "warning")
def past_the_context(spec: Spec) -> Iterator[Finding]:
    """Sequences longer than the model's context train without a message, on positions that it has never seen.

    Source: no check in trl or transformers; executed (1802 tokens on a 512-token model, finite loss).
    """
    facts = spec.model.facts
    if facts is not None and facts.context and spec.integer("batch.seq") > facts.context:
        yield Finding(
            spec.place("batch.seq", f"{facts.alias} has a context of {facts.context}"),
            f"sequences of {spec.integer('batch.seq')} tokens pass the model's context",
            f"write `seq = {facts.context}`",
            replace=f"seq = {facts.context}" if spec.written("batch.seq") else None,
        )


RULES = (
    packing_without_flash,
    mask_not_exact,
    wrapped_packing,
    packing_strategy,
    flash_hardware,
    attention_family,
    flex_on_cpu,
    padding_free_with_length,
    padding_free_without_flash,
    past_the_context,
)
