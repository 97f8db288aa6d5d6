"""Rules about the dtypes that the hardware, the strategy and the method support (XP30x, XP32x, XP57x)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.spec.adapter_dtype import adapter_dtype

SUMMED_IN = ("data_types.grad_accum_dtype", "communication_data_type", "seq_parallel_communication_data_type")
"""The keys of DeepSpeed's configuration that set the dtype in which gradients are summed or sent."""
BF16 = ("bf16", "bfloat16", "torch.bfloat16")
UNROTATED = ("bloom", "gpt2", "gpt_bigcode", "mpt", "opt")
"""Families without rotary positions: their models learn an embedding of each position, or add a bias to the attention
scores (ALiBi).
"""


PACKED_NAME = re.compile(
    r"[-_.](GGUF|ONNX|OpenVINO|MLC|AWQ|GPTQ|EXL2|EXL3|FP8|NVFP4|MXFP4|bnb-4bit|[w248]{0,2}int[48]|w[48]a(?:4|8|16)"
    r"|[2-8]-?bits?)(?=$|[-_.])",
    re.IGNORECASE,
)
"""Matches hub ids with an ending that names a quantized copy of a model, such as `-GGUF`, `-AWQ` or `.w4a16`, or a copy
for another program, such as `-ONNX`.
"""
FOREIGN = ("ONNX", "OPENVINO", "MLC", "EXL2", "EXL3")
"""Those endings in PACKED_NAME, such as `-ONNX`, that name a format which transformers cannot read."""


@rule("XP171", "quantized-by-its-name", reads=("method.teacher",))
def quantized_by_its_name(spec: Spec) -> Iterator[Finding]:
    """A model whose hub id ends with `-GGUF`, `-AWQ`, `-GPTQ`, `-FP8` or the like cannot be trained in full. Adapters
    can be trained on most of these models. GGUF is refused even with adapters. FP8 is refused with `save(merge)`, and
    on targets that cannot train adapters on fp8 weights. `qlora` and `bits` are refused if the weights are already
    quantized, unless bitsandbytes has stored them in 4 bits (`-bnb-4bit`). A copy for a program other than
    transformers, such as `-ONNX`, is always refused. The teacher of `method distill` is not trained, so only copies
    that cannot be loaded are refused. If the model's config.json is known, the rules XP450 and XP167 check it instead
    of the name.

    Why it is bad: a repository with an ending such as `-AWQ` has packed weights, which have no gradient; a GGUF
    repository also has no safetensors.

    Without this rule: loading the model or building the trainer fails after the download. If `bits = 8` is written for
    a model that bitsandbytes has stored in 4 bits, transformers only warns, and the base keeps 4 bits.

    Source: transformers 5.23 `trainer_utils.py` (`validate_quantization_for_training`), `modeling_utils.py`,
    `quantizers/auto.py` (`merge_quantization_configs`).
    """
    for model in spec.models:
        found = None if model.config or model.id is None else PACKED_NAME.search(model.id)
        if found is None:
            continue
        kind, trained = found[1].upper(), model is spec.model
        merged = trained and spec.flag("save.merge")
        never = kind in ("GGUF", *FOREIGN) or (kind == "FP8" and (merged or not spec.stack.facts.fp8_bases))
        named = f"the name of `{model.name[:80]}` says that its weights are"
        help = f"name the unquantized model, such as `{found.string[: found.start()].removesuffix('-quantized')[:80]}`"
        if never or (trained and not spec.lora):
            says = "in another program's format" if kind in FOREIGN else "quantized"
            help += "" if never else ", or write `lora`"
            yield Finding(model.label, f"{named} {says} ({found[1]})", help)
        elif trained and (spec.bits == 8 if kind == "BNB-4BIT" else spec.bits is not None):
            written = spec.written("lora.bits")
            yield Finding(
                spec.location("lora.bits" if written else spec.adapter, "not applied to quantized weights"),
                f"{named} already quantized ({found[1]})",
                f"leave `bits` out, or {help}" if written else help,
                (model.label,),
            )


@rule("XP301", "bf16-before-ampere")
def bf16_before_ampere(spec: Spec) -> Iterator[Finding]:
    """bf16 needs a GPU of compute capability 8.0 (Ampere) or later. This rule checks the precision of the run, the
    dtype of the weights, the dtype of a teacher, and the keys of `extra deepspeed` that set the dtype of gradients.

    Why it is bad: older GPUs emulate bf16 in software and train very slowly.

    Without this rule: nothing is reported, because torch counts emulated bf16 as supported. DeepSpeed does not check
    the GPU: if `extra deepspeed` sets bf16, gradients are summed and sent in bf16.

    Source: torch 2.13 `cuda.is_bf16_supported(including_emulation=True)`; transformers 5.23 `training_args.py`;
    deepspeed 0.19.8 and 0.16.8 `runtime/config.py`.
    """
    gpu = spec.hardware.gpu
    if gpu is None or gpu.capability >= (8, 0):
        return
    fact = f"{gpu.name} has compute capability {gpu.compute_capability}; bf16 needs 8.0"
    related = (spec.label("hardware", "the GPU"),)
    if spec.text("precision") == "bf16":
        location = spec.location("precision", fact)
        yield Finding(
            location,
            f"bf16 on {gpu.name}, which is older than Ampere",
            "write `precision fp32`, or `precision fp16` for mixed precision",
            related,
            location.typed.replace("bf16", "fp32"),
        )
    if spec.text("model.dtype") == "bf16":
        yield Finding(
            spec.location("model.dtype", fact),
            f"bf16 weights on {gpu.name}, which is older than Ampere",
            write("dtype = fp32"),
            related,
        )
    if spec.get("method.teacher_dtype") == "bf16" and spec.written("method.teacher_dtype"):
        yield Finding(
            spec.location("method.teacher_dtype", fact),
            f"a teacher in bf16 on {gpu.name}, which is older than Ampere",
            write("teacher_dtype = fp32"),
            related,
        )
    for name in SUMMED_IN:
        if spec.zero_stage and str(spec.extra_value("deepspeed", name)).lower() in BF16:
            yield Finding(
                spec.extra_location("deepspeed", name, fact),
                f"gradients in bf16 on {gpu.name}, which is older than Ampere",
                f"leave `{name}` out",
                related,
            )


@rule("XP323", "bf16-positions-before-ampere")
def bf16_positions(spec: Spec) -> Iterator[Finding]:
    """The first Falcon models (falcon-rw) need a GPU of compute capability 8.0 or later.

    Why it is bad: falcon-rw models use ALiBi, and transformers multiplies the slopes of ALiBi in bf16, whatever the
    precision of the run is. Older GPUs only emulate bf16.

    Without this rule: nothing is reported.

    Source: transformers 5.23 and 4.52.3 `modeling_falcon.py` (`build_alibi_tensor`); confirmed by running it.
    """
    gpu = spec.hardware.gpu
    alibi = spec.model.model_type == "falcon" and spec.model.config.get("alibi") is True
    if alibi and gpu is not None and gpu.capability < (8, 0):
        yield Finding(
            spec.location("hardware", f"compute capability {gpu.compute_capability}; bf16 needs 8.0"),
            f"falcon with ALiBi computes its positions in bf16, and {gpu.name} is older than Ampere",
            "write a GPU of compute capability 8.0 or later in `hardware`, such as a100-40gb",
            (spec.model.label,),
        )


@rule("XP302", "tf32-before-ampere")
def tf32_before_ampere(spec: Spec) -> Iterator[Finding]:
    """`tf32` needs a GPU of compute capability 8.0 or later.

    Why it is bad: CPUs and GPUs older than Ampere have no TensorFloat-32.

    Without this rule: building the arguments raises ValueError.

    Source: transformers 5.23 `training_args.py`; confirmed by running it.
    """
    gpu = spec.hardware.gpu
    if spec.flag("precision.tf32") and (gpu is None or gpu.capability < (8, 0)):
        where = "the CPU" if gpu is None else gpu.name
        yield Finding(
            spec.location("precision.tf32", f"{where} has no tf32"),
            f"tf32 cannot be used on {where}",
            "leave `tf32` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP303", "fp16-on-cpu")
def fp16_on_cpu(spec: Spec) -> Iterator[Finding]:
    """fp16 mixed precision does not work on a CPU.

    Why it is bad: on a CPU, fp16 mixed precision has no effect: there is neither autocast nor a loss scaler.

    Without this rule: nothing is reported, and the run trains in fp32.

    Source: accelerate 1.15 `Accelerator.__init__` (`native_amp` stays false); confirmed by running it.
    """
    if spec.on_cpu and spec.text("precision") == "fp16":
        location = spec.location("precision", "ignored on a CPU")
        yield Finding(
            location,
            "fp16 on the CPU trains in fp32",
            "write `precision fp32`",
            (spec.label("hardware", "the hardware"),),
            location.typed.replace("fp16", "fp32"),
        )


def _frozen(spec: Spec) -> bool:
    """Whether all weights of the base model are frozen. If so, only adapters are trained, and adapters have a dtype of
    their own.
    """
    return spec.lora and not spec.names("lora.modules_to_save")


def _updated_as(dtype: str, spec: Spec) -> bool:
    """Whether the optimizer updates weights of this dtype directly, without an fp32 copy: always under ddp, and under
    FSDP without mixed precision. With adapters, a reward model also trains its score head, in the dtype of the base.
    """
    direct = spec.text("strategy") == "ddp" or (spec.sharded_by_fsdp and spec.text("precision") == "fp32")
    trained = spec.method.scores if _frozen(spec) else not _not_fp32(spec)
    return spec.text("model.dtype") == dtype and direct and trained


def _not_fp32(spec: Spec) -> bool:
    """Whether the weights have a narrower dtype than fp32, although the spec states `precision fp32`. The rule XP307
    reports this.
    """
    return spec.text("precision") == "fp32" and spec.written("precision") and spec.text("model.dtype") != "fp32"


@rule("XP304", "fp16-weights")
def fp16_weights(spec: Spec) -> Iterator[Finding]:
    """fp16 weights can be trained only if the run also keeps an fp32 master copy of them. DeepSpeed keeps such a copy,
    and so does FSDP with mixed precision.

    Why it is bad: the gradient scaler refuses fp16 gradients, and Adam's epsilon (1e-8) is rounded to zero in fp16.

    Without this rule: with `precision fp16`, the first optimizer step raises "Attempting to unscale FP16 gradients";
    with `precision bf16`, nothing is reported, and weights can become nan in one step.

    Source: torch 2.13 `amp/grad_scaler.py`, accelerate 1.15 `fsdp_utils.py`; confirmed by running it.
    """
    if _updated_as("fp16", spec):
        strategy = spec.text("strategy")
        yield Finding(
            spec.location("model.dtype", f"no fp32 master copy under {strategy}"),
            f"fp16 weights cannot be trained under {strategy}",
            write("dtype = fp32"),
            (spec.label("precision"), spec.label("strategy")),
        )


@rule("XP326", "fp16-weights-in-bf16-autocast")
def mixed_halves(spec: Spec) -> Iterator[Finding]:
    """Under ddp, a model with fp16 weights cannot be trained with `precision bf16` if some layers are 4-bit, or if the
    adapters are not LoRA. ZeRO and FSDP do not have this problem, because they cast the weights to the dtype of the
    run.

    Why it is bad: the output of a 4-bit layer, or of a layer with adapters other than LoRA, has the dtype of the
    layer's input, which is fp16. Under bf16 autocast, torch refuses an operation on several fp16 tensors, for example
    the addition of two. Queries and keys are rotated by their positions with such operations.

    Without this rule: RuntimeError in the first step ("Unexpected floating ScalarType in at::autocast::prioritize").

    Source: torch 2.13 `aten/src/ATen/autocast_mode.h` (`prioritize`); bitsandbytes 0.50 `nn/modules.py`, peft 0.17 to
    0.21 `tuners/oft/layer.py`, `tuners/vera/layer.py`, `tuners/loha/layer.py`, `tuners/miss/layer.py`; confirmed by
    running it with qwen2 and llama.
    """
    if spec.text("model.dtype") != "fp16" or spec.text("precision") != "bf16" or spec.text("strategy") != "ddp":
        return
    if (spec.bits == 4 or not spec.low_rank) and spec.model.model_type not in UNROTATED:
        what = "a base of 4 bits" if spec.low_rank else "rotations" if spec.flag("oft") else f"`{spec.adapter}`"
        yield Finding(
            spec.location("model.dtype", "bf16 autocast refuses fp16 tensors"),
            f"fp16 weights with {what} cannot be trained in bf16",
            write("dtype = bf16"),
            (spec.label("precision"), spec.label("lora.bits" if spec.low_rank else spec.adapter)),
        )


@rule("XP305", "bf16-weights", "warning")
def bf16_weights(spec: Spec) -> Iterator[Finding]:
    """Weights under ddp should be fp32, because ddp keeps no fp32 master copy of bf16 weights. This rule warns; for a
    learning rate of 1e-5 or less, it reports an error.

    Why it is bad: an update that is small in comparison with its weight is rounded to 0.

    Without this rule: nothing is reported; in one step at a learning rate of 1e-6, only 2 % of bf16 weights changed,
    but 100 % of fp32 weights.

    Source: accelerate 1.15 `prepare_model` (no upcast in the DDP branch); confirmed by running it.
    """
    if _updated_as("bf16", spec):
        lr, strategy = spec.real("optimizer.lr"), spec.text("strategy")
        yield Finding(
            spec.location("model.dtype", f"no fp32 master copy under {strategy}"),
            f"bf16 weights under {strategy} lose updates at a learning rate of {lr:g}",
            write("dtype = fp32"),
            (spec.label("optimizer.lr", "the learning rate"),),
            severity="error" if lr <= 1e-5 else "warning",
        )


@rule("XP307", "weights-narrower-than-the-precision")
def narrow_weights(spec: Spec) -> Iterator[Finding]:
    """With `precision fp32`, the weights that are trained must be fp32.

    Why it is bad: without mixed precision a model computes in the dtype of its weights, so bf16 weights are not trained
    in fp32.

    Without this rule: nothing is reported. ddp and FSDP update the weights in their narrow dtype. ZeRO updates fp32
    master copies, but computes in the narrow dtype.

    Source: accelerate 1.15 `prepare_model`, `fsdp_utils.py`; deepspeed 0.19.8 and 0.16.8 `engine.py` (no cast where
    neither fp16 nor bf16 is on); confirmed by running it.
    """
    if _not_fp32(spec) and not _frozen(spec):
        dtype = spec.text("model.dtype")
        yield Finding(
            spec.location("model.dtype", f"layers compute in {dtype}"),
            f"{dtype} weights under `precision fp32` compute in {dtype}",
            write("dtype = fp32"),
            (spec.label("precision", "the precision"),),
        )


@rule("XP573", "zero3-loads-in-the-precision")
def loaded_wide(spec: Spec) -> Iterator[Finding]:
    """A frozen base under ZeRO-3 with `precision fp32` must have `dtype = fp32` in the spec. A quantized base is
    exempt.

    Why it is bad: ZeRO-3 creates weights in the dtype of the run's precision, so a base with `dtype = bf16` still takes
    the memory of fp32.

    Without this rule: nothing is reported.

    Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `zero/partition_parameters.py` (`Init` takes the dtype from DeepSpeed's
    configuration); confirmed by running it.
    """
    dtype = spec.text("model.dtype")
    if spec.zero_stage == 3 and spec.lora and not spec.bits and spec.text("precision") == "fp32" and dtype != "fp32":
        yield Finding(
            spec.location("model.dtype", "becomes fp32"),
            f"{dtype} weights become fp32 under zero3 with `precision fp32`",
            write("dtype = fp32"),
            (spec.label("strategy"), spec.label("precision")),
        )


@rule("XP576", "zero-widens-the-score")
def widened_score(spec: Spec) -> Iterator[Finding]:
    """A reward model with adapters under ZeRO-1 or 2 and `precision fp32` needs a base whose dtype is the dtype of the
    adapters. Adapters are fp32; on a quantized base on trl-1.16, they are bf16. With `precision` bf16 or fp16, the rule
    does not apply, because DeepSpeed casts all weights to one dtype.

    Why it is bad: ZeRO-1 and 2 keep all trained weights in one flat tensor, so the score head gets the dtype of the
    adapters, float32. The input of the score head comes from the base and is in half precision.

    Without this rule: RuntimeError in the first step ("expected m1 and m2 to have the same dtype").

    Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `zero/stage_1_and_2.py` (`flatten_dense_tensors_aligned`); confirmed by
    running it.
    """
    dtype = spec.text("model.dtype")
    scored = spec.lora and spec.method.scores
    if spec.zero_stage in (1, 2) and scored and spec.text("precision") == "fp32" and adapter_dtype(spec) != dtype:
        yield Finding(
            spec.location("model.dtype", "the dtype of the base's output"),
            f"the score head is float32 under {spec.text('strategy')}, and its base is {dtype}",
            write("dtype = fp32"),
            (spec.label("strategy"), spec.label("precision")),
        )


@rule("XP308", "fp16-zero-before-volta")
def fp16_zero_before_volta(spec: Spec) -> Iterator[Finding]:
    """fp16 with DeepSpeed needs a GPU of compute capability 7.0 or later.

    Why it is bad: DeepSpeed refuses fp16 on GPUs of capability 6.x, where it is deprecated.

    Without this rule: ValueError when training begins, because bundles do not set DS_ALLOW_DEPRECATED_FP16.

    Source: deepspeed 0.19.8 and 0.16.8 `accelerator/cuda_accelerator.py`, `runtime/engine.py`.
    """
    gpu = spec.hardware.gpu
    if gpu is not None and gpu.capability < (7, 0) and spec.zero_stage and spec.text("precision") == "fp16":
        location = spec.location("precision", f"{gpu.name} has compute capability {gpu.compute_capability}")
        yield Finding(
            location,
            f"fp16 with ZeRO cannot run on {gpu.name}",
            "write `precision fp32`, or `strategy ddp`",
            (spec.label("strategy", "DeepSpeed needs 7.0"), spec.label("hardware", "the GPU")),
            location.typed.replace("fp16", "fp32"),
        )


@rule("XP306", "bf16-zero-on-cpu")
def bf16_zero_on_cpu(spec: Spec) -> Iterator[Finding]:
    """bf16 cannot be used with ZeRO on a CPU.

    Why it is bad: bf16 on a CPU needs `use_cpu`, and `use_cpu` makes accelerate replace DeepSpeed by plain DDP.

    Without this rule: ValueError while the training arguments are built, or the run silently uses DDP without ZeRO.

    Source: transformers 5.23 `training_args.py`, accelerate 1.15 `state.py`; confirmed by running it.
    """
    if spec.on_cpu and spec.zero_stage and spec.text("precision") == "bf16":
        location = spec.location("precision", "turns ZeRO off on a CPU")
        yield Finding(
            location,
            "bf16 cannot be used with ZeRO on the CPU",
            "write `precision fp32`, or `strategy ddp`",
            (spec.label("strategy", "the strategy"), spec.label("hardware", "the hardware")),
            location.typed.replace("bf16", "fp32"),
        )
