"""Bases that were quantized before (XP450 to XP452)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import quantized
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = quantized

PACKED = ("aqlm", "awq", "bitsandbytes", "eetq", "gptq", "hqq", "quanto", "vptq")
"""Ways to quantize whose weights take no gradient; others give the weights back, or fail in ways of their own."""


def _packed(spec: Spec) -> str | None:
    """How a base that is read here was quantized before, or None."""
    found = spec.model.config.get("quantization_config")
    how = found.get("quant_method") if isinstance(found, Mapping) else None
    if how is None and isinstance(found, Mapping) and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        how = "bitsandbytes"
    return how if isinstance(how, str) and how in PACKED else None


@rule("XP450", "quantized-weights-trained")
def quantized_trained(spec: Spec) -> Iterator[Finding]:
    """Packed weights take no gradient: a quantized base is trained through adapters only.

    The config.json of a local model is read, or one that is given. Today: ValueError in the trainer's constructor,
    after the model is loaded. Source: transformers 5.23 `trainer_utils.py` (`validate_quantization_for_training`), 4.52
    `trainer.py`; executed.
    """
    how = _packed(spec)
    if how is not None and not spec.lora:
        yield Finding(
            spec.model.label,
            f"{spec.model.name} is quantized ({how}), and its weights cannot be trained",
            "write `lora`, or name the model that it was made of",
        )


@rule("XP451", "quantized-twice")
def quantized_twice(spec: Spec) -> Iterator[Finding]:
    """A base that is quantized already cannot be quantized once more by bitsandbytes.

    Today: ValueError while the model is loaded. Source: transformers 5.23 `quantizers/auto.py`
    (`merge_quantization_configs`), 4.52 the same; executed.
    """
    how = _packed(spec)
    if how not in (None, "bitsandbytes") and spec.bits is not None:
        place: Path = "lora.bits" if spec.written("lora.bits") else "qlora"
        yield Finding(
            spec.place(place, f"{spec.bits} bits by bitsandbytes"),
            f"{spec.model.name} is quantized already ({how})",
            "leave `bits` out" if place == "lora.bits" else "write `lora` instead",
            (spec.model.label,),
        )


@rule("XP452", "packed-weights-not-sharded", "warning")
def packed_not_sharded(spec: Spec) -> Iterator[Finding]:
    """Weights that GPTQ, AWQ and their kin have packed are whole numbers, which FSDP and ZeRO-3 leave in every process.

    Today, silently: nothing is sharded but the adapters. LLaMA-Factory refuses it (`model_utils/quantization.py`).
    """
    how = _packed(spec)
    if how not in (None, "bitsandbytes") and spec.lora and spec.weights_sharded:
        yield Finding(
            spec.place("strategy", "shards no packed weight"),
            f"{spec.text('strategy')} keeps a base of {how} whole in every process",
            "write `strategy ddp`, or `qlora` over the model that it was made of",
            (spec.model.label,),
        )
