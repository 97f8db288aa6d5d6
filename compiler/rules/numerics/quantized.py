"""Rules about models whose published weights are quantized (XP167, XP168, XP426, XP450 to XP452, XP624)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import older_transformers, quantized
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = quantized

GIB = 2**30

INFERENCE = ("auto-round", "compressed-tensors", "gemma", "higgs", "metal", "nvfp4", "quark", "spqr", "vptq")
"""Quantization methods that cannot be trained even with adapters: transformers refuses it (`HfQuantizer.is_trainable`),
or, for compressed-tensors, peft finds no weight to adapt (AttributeError).
"""
PACKAGES = {
    "aqlm": "aqlm", "awq": "gptqmodel", "eetq": "eetq", "gptq": "gptqmodel",
    "hqq": "hqq", "quanto": "optimum-quanto", "torchao": "torchao",
}  # fmt: skip
"""Maps each other quantization method (`quant_method` in config.json) for which transformers keeps the weights packed,
so that they have no gradient, to the package that it needs. transformers 4 reads AWQ with the package `autoawq`.
"""
PACKED = ("bitsandbytes", *PACKAGES, *INFERENCE)
FP8 = ("fp8", "fbgemm_fp8")
"""Quantization methods that store weights in eight-bit floating point."""
WITH_FP8 = (8, 9)
"""The lowest compute capability of a GPU on which transformers keeps fp8 weights packed. On older GPUs, transformers
unpacks the weights.
"""
UNPACKED = "mxfp4"
"""The quantization method of gpt-oss. Without the package `kernels`, its weights are unpacked to bf16. bitsandbytes
cannot quantize these weights.
"""
READ = (*PACKED, *FP8, UNPACKED, "bitnet", "fouroversix", "fp_quant", "gguf", "mxfp8", "sinq")
"""Quantization methods that a transformers of some stack can load. Source: transformers 5.23 and 4.52
`quantizers/auto.py` (`AUTO_QUANTIZER_MAPPING`).
"""


def _packed(spec: Spec, *others: str) -> str | None:
    """The quantization method that the model's config.json states, if it is in `PACKED` or in `others`, or if no
    transformers can load it; otherwise None.
    """
    found = spec.model.config.get("quantization_config")
    how = found.get("quant_method") if isinstance(found, Mapping) else None
    if how is None and isinstance(found, Mapping) and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        how = "bitsandbytes"
    how = UNPACKED if spec.in_mxfp4 else how
    return how if isinstance(how, str) and (how in (*PACKED, *others) or how not in READ) else None


@rule("XP450", "quantized-weights-trained")
def quantized_trained(spec: Spec) -> Iterator[Finding]:
    """A model whose weights are stored quantized can be trained only with adapters, and not even with adapters if it is
    quantized by AutoRound, compressed-tensors, HIGGS, ModelOpt, Quark, SpQR, VPTQ or a method that transformers cannot
    load, such as EXL3. xpc reads the config.json in the folder of a local model, or the file that the setting `config`
    names.

    Why it is bad: packed weights have no gradient, and the kernels of some methods have no backward pass.

    Without this rule: ValueError in the trainer's constructor, after the model is loaded, or while it is loaded.

    Source: transformers 5.23 `trainer_utils.py` (`validate_quantization_for_training`), 4.52 `trainer.py`; confirmed by
    running it.
    """
    how = _packed(spec)
    what = "adapters" if spec.lora else "its weights"
    later = how == "hqq" and not older_transformers(spec)  # "not available yet", when it is loaded
    never = later or how in INFERENCE or how not in (None, *READ)
    if never or (how is not None and not spec.lora):
        yield Finding(
            spec.model.label,
            f"{spec.model.name} is quantized ({how}), and {what} cannot be trained",
            f"{'' if never else 'write `lora`, or '}name the unquantized model",
        )


@rule("XP426", "package-of-packed-weights", "warning")
def package_of_packed(spec: Spec) -> Iterator[Finding]:
    """Adapters on weights that are packed by GPTQ, AWQ, HQQ or a similar method need a package that no target pins, and
    that xpc has not tested with the target's packages.

    Why it is bad: the bundle's requirements.txt does not name the package, so it must be installed by hand.

    Without this rule: ImportError while the model is loaded.

    Source: transformers 5.23 and 4.52 `quantizers/` (`validate_environment`).
    """
    how = _packed(spec)
    if how in PACKAGES and spec.lora:
        package = "autoawq" if how == "awq" and older_transformers(spec) else PACKAGES[how]
        yield Finding(
            spec.model.label,
            f"training on {how} weights needs the package `{package}`, which {spec.stack.name} does not pin",
            f"install {package} next to the bundle's packages, or write `qlora` with the unquantized model",
        )


@rule("XP451", "quantized-twice")
def quantized_twice(spec: Spec) -> Iterator[Finding]:
    """`bits` and `qlora` cannot be used for a model whose weights are already quantized by a method such as GPTQ, AWQ
    or MXFP4. For a model that bitsandbytes has stored, `bits` must be the stored number, 4 or 8.

    Why it is bad: transformers cannot apply a second quantization to weights that are already quantized.

    Without this rule: ValueError while the model is loaded. A model of bitsandbytes is loaded without a message, and
    keeps its stored number of bits.

    Source: transformers 5.23 and 4.52 `quantizers/auto.py` (`merge_quantization_configs`); confirmed by running it.
    """
    how = _packed(spec, UNPACKED, *FP8)
    stored = spec.model.stored_bits if how == "bitsandbytes" else None
    if stored is not None and spec.bits not in (None, stored):
        yield Finding(
            spec.location("lora.bits" if spec.written("lora.bits") else "qlora", f"{spec.bits} bits"),
            f"{spec.model.name} is stored and always loaded in {stored} bits",
            f"write `lora(bits={stored})`, or name the unquantized model",
            (spec.model.label,),
        )
    if how not in (None, "bitsandbytes") and spec.bits is not None:
        location: Path = "lora.bits" if spec.written("lora.bits") else "qlora"
        yield Finding(
            spec.location(location, f"{spec.bits} bits by bitsandbytes"),
            f"{spec.model.name} is quantized already ({how})",
            "leave `bits` out" if location == "lora.bits" else "write `lora` instead",
            (spec.model.label,),
        )


@rule("XP452", "packed-weights-not-sharded", "warning")
def packed_not_sharded(spec: Spec) -> Iterator[Finding]:
    """FSDP and ZeRO-3 should not be used for a base packed by GPTQ, AWQ or a similar method, because they do not shard
    its weights.

    Why it is bad: packed weights are integers, which FSDP and ZeRO-3 keep completely in every process.

    Without this rule: nothing is reported, and only the adapters are sharded.

    Source: LLaMA-Factory refuses the combination (`model_utils/quantization.py`); read, not run.
    """
    how = _packed(spec)
    if how not in (None, "bitsandbytes") and spec.lora and spec.weights_sharded:
        yield Finding(
            spec.location("strategy", "does not shard quantized weights"),
            f"{spec.text('strategy')} keeps all weights of a {how} base in every process",
            "write `strategy ddp`, or `qlora` with the unquantized model",
            (spec.model.label,),
        )


@rule("XP167", "stored-in-fp8")
def in_fp8(spec: Spec) -> Iterator[Finding]:
    """A model that is stored in fp8 can be trained only on trl-1.16, with adapters that are not merged. xpc reads the
    config.json in the folder of a local model, or the file that the setting `config` names.

    Why it is bad: weights in fp8 have no gradient. On GPUs that cannot compute in fp8, and on CPUs, transformers
    unpacks the weights while loading them, and unpacked weights can be trained. But they are saved in fp8 again, and
    the saved config.json does not say that the weights are in fp8. A program that loads the saved model does not
    multiply the weights by their scales, so it computes with wrong weights (up to 448 instead of 0.07). transformers
    before 5 cannot train adapters on fp8 weights either.

    Without this rule: ValueError in the trainer's constructor on a GPU of compute capability 8.9 or later; on other
    hardware nothing is reported, and every checkpoint is useless. transformers before 5 raises RuntimeError or
    ValueError while it loads the model.

    Source: transformers 5.23, 4.57 and 4.52 `quantizers/quantizer_finegrained_fp8.py` and `quantizer_fbgemm_fp8.py`
    (`validate_environment`, `is_trainable`), 5.23 `trainer_utils.py` (`validate_quantization_for_training`) and
    `integrations/finegrained_fp8.py` (`Fp8Dequantize.reverse_op`); confirmed by running it on a CPU.
    """
    how = _packed(spec, *FP8)
    if how not in FP8:
        return
    what, copy = f"{spec.model.name} is stored in fp8 ({how})", "name a copy of the model in bf16"
    if how != "fp8":
        yield Finding(spec.model.label, f"{what}, which is for inference only", copy)
    elif not spec.stack.facts.fp8_bases:
        yield Finding(
            spec.model.label,
            f"{what}, and {spec.stack.name} cannot train adapters over such weights",
            f"write `target {able(lambda one: one.facts.fp8_bases)}`, or {copy}",
            (spec.label("target", "the target"),),
        )
    elif not spec.lora:
        unpacked = _unpacked_from_fp8(spec)
        why = (
            "trained weights would be saved in a form that cannot be loaded"
            if unpacked
            else "weights cannot be trained"
        )
        yield Finding(spec.model.label, f"{what}, and its {why}", f"write `lora`, or {copy}")
    elif spec.flag("save.merge"):
        yield Finding(
            spec.location("save.merge", "writes weights back in fp8"),
            f"{what}, and merged weights would be saved in a form that cannot be loaded",
            f"leave `merge` out, or {copy}",
            (spec.model.label,),
        )


STORED = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _stays(spec: Spec) -> str | None:
    """The dtype in which some weights of an fp8 or MXFP4 checkpoint are loaded, whatever the spec's `dtype` is. None if
    it is unknown, if the target converts all weights to `dtype`, or if the checkpoint is of another kind.
    """
    if spec.in_mxfp4:
        return "bf16" if spec.stack.facts.mxfp4_dtype == "bfloat16" else None
    if _packed(spec, *FP8) != "fp8":
        return None
    config = spec.model.config
    return STORED.get(str(config.get("dtype", config.get("torch_dtype"))))


@rule("XP168", "dtype-of-stored-weights")
def stored_dtype(spec: Spec) -> Iterator[Finding]:
    """For a model that is stored in fp8, `dtype` must be the dtype of the weights that are not quantized, such as the
    embeddings. The model's config.json states this dtype. For a model in MXFP4 on trl-0.24, `dtype` must be bf16. For
    fp8, the rule accepts any `dtype` if the unquantized weights are in bf16 and neither `dtype` nor `precision` is
    bf16, because the bundle's runtime then converts these weights to `dtype`.

    Why it is bad: transformers converts unpacked weights to `dtype`, but leaves the embeddings and norms of an fp8
    checkpoint in the dtype in which they are stored; transformers 4.57 unpacks MXFP4 to bf16 only.

    Without this rule: without autocast, RuntimeError in the first step ("mat1 and mat2 must have the same dtype"). With
    autocast, nothing is reported, and a part of the model has another dtype than the bundle states.

    Source: transformers 5.23 `core_model_loading.py`, `integrations/finegrained_fp8.py` (`Fp8Dequantize`), 4.57
    `integrations/mxfp4.py` (`convert_moe_packed_tensors`); confirmed by running it on a CPU.
    """
    stays, dtype = _stays(spec), spec.text("model.dtype")
    widened = stays == "bf16" and "bf16" not in (dtype, spec.text("precision"))
    # the rule XP451 already reports `bits` for a model whose stored weights are quantized
    if stays is None or stays == dtype or widened or spec.bits is not None:
        return
    what = "some weights are" if spec.in_mxfp4 else "the weights that are not in fp8 are"
    yield Finding(
        spec.location("model.dtype", f"{what} loaded in {stays}"),
        f"{spec.model.name} cannot be loaded in {dtype} on {spec.stack.name}",
        write(f"dtype = {stays}"),
        (spec.model.label,),
    )


def _unpacked_from_fp8(spec: Spec) -> bool:
    """Whether transformers unpacks fp8 weights when it loads them, because the hardware cannot multiply in fp8."""
    gpu = spec.hardware.gpu
    return gpu is None or gpu.capability < WITH_FP8


@rule("XP624", "unpacked-when-loaded", "note")
def unpacked(spec: Spec) -> Iterator[Finding]:
    """Weights in MXFP4, such as those of gpt-oss, are unpacked when they are loaded: to the model's `dtype`, or to bf16
    on trl-0.24. In bf16, the model needs three to four times the memory that its files take on disk. Weights in fp8 are
    unpacked to `dtype` on a CPU, and on a GPU with a compute capability below 8.9.

    Why it is bad: a model of 13 GiB on the hub takes 39 GiB in memory and in each checkpoint.

    Without this rule: transformers only writes a warning to the log.

    Source: transformers 5.23 and 4.57 `quantizers/quantizer_mxfp4.py`: `validate_environment` sets `dequantize` if the
    package `kernels` is missing, and no bundle for gpt-oss installs it. transformers 5.23
    `quantizer_finegrained_fp8.py` sets `dequantize` if there is no GPU of compute capability 8.9 or later. Confirmed by
    running it on a CPU.
    """
    if _packed(spec, *FP8) == "fp8" and spec.stack.facts.fp8_bases and _unpacked_from_fp8(spec):
        yield Finding(
            spec.model.label,
            f"{spec.model.name} is stored in fp8 and is unpacked to {spec.text('model.dtype')} when it is loaded",
            "name a copy of the model in bf16, which needs no unpacking",
        )
    if spec.in_mxfp4:
        facts = spec.model.facts
        dtype = "bf16" if spec.stack.facts.mxfp4_dtype == "bfloat16" else spec.text("model.dtype")
        size = "" if facts is None else f", {facts.params * (4 if dtype == 'fp32' else 2) / GIB:,.1f} GiB"
        yield Finding(
            spec.model.label,
            f"{spec.model.name} is published in MXFP4 and is unpacked to {dtype} when it is loaded{size}",
            "name a copy of the model in bf16, which needs no unpacking",
        )
