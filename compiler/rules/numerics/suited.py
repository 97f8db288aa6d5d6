"""Rules about hardware and precisions that are legal, but that do not suit the model (XP174, XP327, XP328, XP962)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.row_counts import trained
from xpc.compiler.rules.core.conditions import any_of, chosen, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = any_of(chosen("precision", "fp16", "fp32"), written("lora.double_quant"))

OVERFLOWING = ("gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text")
"""Families with activations larger than 65,504, the largest number in fp16, according to publications."""
AMPERE = (8, 0)
TOKENS_PER_ROW, FLOPS, DAY, MANY_DAYS = 128, 2e12, 86400, 60
"""Constants for the lower bound of a run's time on CPUs: tokens in a row, operations per second of a process, and
seconds in a day. A run is reported if this bound is more than MANY_DAYS days.
"""


@rule("XP327", "activations-overflow-in-fp16", "warning")
def overflows(spec: Spec) -> Iterator[Finding]:
    """`precision fp16` should not be used for Gemma 2 and Gemma 3, nor for other families whose activations exceed the
    largest number of fp16.

    Why it is bad: activations above 65,504 become infinite in fp16, and the loss NaN. Loss scaling protects gradients
    only.

    Without this rule: the loss is 0 or NaN from the first steps on, or the loss scale falls at every step and no weight
    changes.

    Source: transformers issues 36822 and 39972; unsloth `loader.py` (`FORCE_FLOAT32`).
    """
    if spec.text("precision") == "fp16" and spec.model.model_type in OVERFLOWING:
        ampere = spec.hardware.gpu is None or spec.hardware.gpu.capability >= AMPERE
        yield Finding(
            spec.location("precision", "the largest number is 65,504"),
            f"the activations of {spec.model.name} overflow in fp16",
            f"write `precision {'bf16' if ampere else 'fp32'}`",
            (spec.model.label,),
        )


@rule("XP328", "fp32-without-tf32", "note")
def plain_fp32(spec: Spec) -> Iterator[Finding]:
    """`precision fp32` on a GPU of the Ampere generation or later should state `tf32`.

    Why it is bad: without TF32, matrices are multiplied outside of the tensor cores. The peak of an H100 is 67 TFLOP/s
    in fp32 without TF32, 494 with TF32 and 989 in bf16, so the run takes several times as long.

    Without this rule: nothing is reported.

    Source: NVIDIA H100 datasheet (SXM, without sparsity); torch 2.13 `torch.backends.cuda.matmul.allow_tf32`.
    """
    gpu = spec.hardware.gpu
    stated = spec.written("precision") and spec.text("precision") == "fp32" and not spec.written("precision.tf32")
    if stated and gpu is not None and gpu.capability >= AMPERE:
        yield Finding(
            spec.location("precision", f"{gpu.name} has tensor cores for bf16 and TF32"),
            "fp32 without TF32 does not use the tensor cores",
            "write `precision bf16`, or `precision fp32(tf32)`, or `precision fp32(tf32=false)` if intended",
        )


@rule("XP174", "eight-bits-quantized-once", "warning")
def double_quant_of_8_bits(spec: Spec) -> Iterator[Finding]:
    """`double_quant`, which quantizes the scales of 4-bit weights once more, needs `qlora` or `bits = 4`.

    Why it is bad: without 4-bit weights, `double_quant` has no effect.

    Without this rule: nothing is reported; bitsandbytes reads `double_quant` only for 4 bits.

    Source: transformers 5.23 `utils/quantization_config.py` (`bnb_4bit_use_double_quant`).
    """
    if spec.written("lora.double_quant") and spec.flag("lora.double_quant") and spec.bits != 4:
        yield Finding(
            spec.location("lora.double_quant", "never used"),
            f"`double_quant` does nothing for a base of {spec.bits} bits"
            if spec.bits
            else "there are no 4-bit weights",
            "leave `double_quant` out, or write `bits = 4`",
            (spec.label("lora.bits"),),
        )


@rule("XP962", "years-on-a-cpu", "warning")
def years_on_a_cpu(spec: Spec) -> Iterator[Finding]:
    """A run on CPUs should not take more than two months. xpc computes a lower bound of the time: six operations for
    each parameter and token, 128 tokens in a row, and two TFLOP/s in each process. Runs with adapters, with packing,
    or with a method that generates are not checked.

    Why it is bad: nobody waits for months. The spec was probably meant for GPUs, or for a smaller model.

    Without this rule: nothing is reported; the first step takes hours or days.

    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1 (the number of operations).
    """
    facts = spec.model.facts
    if not spec.on_cpu or facts is None or spec.lora or spec.online or spec.flag("batch.packing"):
        return

    steps, rows, gbs = spec.get("train.steps"), trained(spec), spec.get("batch.gbs")
    if isinstance(steps, int):
        seen = float(steps * gbs) if isinstance(gbs, int) else 0.0
    else:
        seen = (rows or 0) * float(spec.get("train.epochs") or 0)
    days = 6 * facts.params * seen * TOKENS_PER_ROW / (FLOPS * spec.hardware.world) / DAY
    if days > MANY_DAYS:
        yield Finding(
            spec.location(
                "hardware", f"at least {days / 365:,.0f} years" if days > 730 else f"at least {days:,.0f} days"
            ),
            f"a CPU cannot train {spec.model.name} on {seen:,.0f} rows in less than two months",
            "write `hardware 8 x h100-80gb`, or `for 10 steps` to try the spec",
            (spec.model.label,),
        )
