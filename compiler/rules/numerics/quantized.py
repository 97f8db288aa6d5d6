"""Models whose weights are quantized already (XP450 to XP452, XP624)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import quantized
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = quantized

GIB = 2**30

PACKED = ("aqlm", "awq", "bitsandbytes", "eetq", "gptq", "hqq", "quanto", "vptq")
"""Quantization methods whose weights have no gradient; others restore the weights, or fail in other ways."""


UNPACKED = "mxfp4"
"""Published gpt-oss weights: unpacked to bf16 unless the package `kernels` is installed; bitsandbytes is refused."""


def _packed(spec: Spec, *others: str) -> str | None:
    """The quantization method of a model that is quantized already, one of PACKED or of `others`, or None."""
    found = spec.model.config.get("quantization_config")
    how = found.get("quant_method") if isinstance(found, Mapping) else None
    if how is None and isinstance(found, Mapping) and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        how = "bitsandbytes"
    how = UNPACKED if spec.in_mxfp4 else how
    return how if isinstance(how, str) and how in (*PACKED, *others) else None


@rule("XP450", "quantized-weights-trained")
def quantized_trained(spec: Spec) -> Iterator[Finding]:
    """A model that is quantized already can be trained only through adapters. The compiler reads the config.json of a
    local model, or the one that `config` names.

    Why it is bad: packed weights have no gradient.

    Without it: ValueError in the trainer's constructor, after the model is loaded.

    Source: transformers 5.23 `trainer_utils.py` (`validate_quantization_for_training`), 4.52 `trainer.py`; confirmed by
    running it.
    """
    how = _packed(spec)
    if how is not None and not spec.lora:
        yield Finding(
            spec.model.label,
            f"{spec.model.name} is quantized ({how}), and its weights cannot be trained",
            "write `lora`, or name the unquantized model",
        )


@rule("XP451", "quantized-twice")
def quantized_twice(spec: Spec) -> Iterator[Finding]:
    """A model that is quantized already cannot be quantized again by bitsandbytes. gpt-oss as OpenAI publishes it is
    known by its id on the hub.

    Why it is bad: the two quantizations cannot be combined.

    Without it: ValueError while the model is loaded.

    Source: transformers 5.23 `quantizers/auto.py` (`merge_quantization_configs`), 4.52 the same; confirmed by running
    it.
    """
    how = _packed(spec, UNPACKED)
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
    """A base packed by GPTQ, AWQ or a similar method is not sharded by FSDP or ZeRO-3.

    Why it is bad: packed weights are integers, which FSDP and ZeRO-3 keep completely in every process.

    Without it: nothing is reported, and only the adapters are sharded.

    Source: LLaMA-Factory refuses it (`model_utils/quantization.py`).
    """
    how = _packed(spec)
    if how not in (None, "bitsandbytes") and spec.lora and spec.weights_sharded:
        yield Finding(
            spec.place("strategy", "does not shard packed weights"),
            f"{spec.text('strategy')} keeps all weights of a {how} base in every process",
            "write `strategy ddp`, or `qlora` with the unquantized model",
            (spec.model.label,),
        )


@rule("XP624", "unpacked-when-loaded", "note")
def unpacked(spec: Spec) -> Iterator[Finding]:
    """Weights in MXFP4, as gpt-oss is published, are unpacked to bf16 when they are loaded, so a GPU needs about four
    times the size of the file.

    Why it is bad: a model of 13 GiB on the hub takes 39 GiB in memory and in each checkpoint.

    Without it: a warning in the log of transformers.

    Source: transformers 5.23 and 4.57 `quantizers/quantizer_mxfp4.py` (`validate_environment`: without the package
    `kernels`, which no bundle for this family installs, `dequantize` becomes true).
    """
    if spec.in_mxfp4:
        facts = spec.model.facts
        size = "" if facts is None else f", {facts.params * 2 / GIB:,.1f} GiB"
        yield Finding(
            spec.model.label,
            f"{spec.model.name} is published in MXFP4 and is unpacked to bf16 when it is loaded{size}",
            "name a copy in bf16 to download the weights that are trained",
        )
