"""Dtypes against hardware (XP30x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

SUMMED_IN = ("data_types.grad_accum_dtype", "communication_data_type", "seq_parallel_communication_data_type")
"""Keys of DeepSpeed's that name the type of sums and of messages."""
BF16 = ("bf16", "bfloat16", "torch.bfloat16")
UNROTATED = ("bloom", "gpt2", "gpt_bigcode", "mpt", "opt")
"""Families whose positions are learned, or added to the scores of attention."""


@rule("XP301", "bf16-before-ampere")
def bf16_before_ampere(spec: Spec) -> Iterator[Finding]:
    """bf16 needs a GPU of compute capability 8.0 (Ampere) or later.

    Nothing is raised today: torch counts software emulation as support, so a V100 trains, emulated and very slowly.
    DeepSpeed sums and sends gradients in bf16 where `extra deepspeed` says so. Adapters, weights and bases that a
    library would make bf16 by itself are kept by the bundle's runtime in the type that it states. Source: torch 2.13
    `cuda.is_bf16_supported(including_emulation=True)`; transformers 5.23 `training_args.py`; deepspeed 0.19.8 and
    0.16.8 `runtime/config.py`.
    """
    gpu = spec.hardware.gpu
    if gpu is None or gpu.capability >= (8, 0):
        return
    fact = f"{gpu.name} has compute capability {gpu.compute_capability}; bf16 needs 8.0"
    related = (spec.label("hardware", "the GPU"),)
    if spec.text("precision") == "bf16":
        place = spec.place("precision", fact)
        yield Finding(
            place,
            f"bf16 on {gpu.name}, which is older than Ampere",
            "write `precision fp32`, or `precision fp16` for mixed precision",
            related,
            place.typed.replace("bf16", "fp32"),
        )
    if spec.text("model.dtype") == "bf16":
        yield Finding(
            spec.place("model.dtype", fact),
            f"bf16 weights on {gpu.name}, which is older than Ampere",
            write("dtype = fp32"),
            related,
        )
    if spec.get("method.teacher_dtype") == "bf16" and spec.written("method.teacher_dtype"):
        yield Finding(
            spec.place("method.teacher_dtype", fact),
            f"a teacher in bf16 on {gpu.name}, which is older than Ampere",
            write("teacher_dtype = fp32"),
            related,
        )
    for name in SUMMED_IN:
        if spec.zero_stage and str(spec.extra_value("deepspeed", name)).lower() in BF16:
            yield Finding(
                spec.extra_place("deepspeed", name, fact),
                f"gradients in bf16 on {gpu.name}, which is older than Ampere",
                f"leave `{name}` out",
                related,
            )


@rule("XP323", "bf16-positions-before-ampere")
def bf16_positions(spec: Spec) -> Iterator[Finding]:
    """The first Falcon models (falcon-rw) have ALiBi, whose slopes transformers multiplies in bf16 in every precision.

    Nothing is raised today. Source: transformers 5.23 and 4.52.3 `modeling_falcon.py` (`build_alibi_tensor`); executed.
    """
    gpu = spec.hardware.gpu
    alibi = spec.model.model_type == "falcon" and spec.model.config.get("alibi") is True
    if alibi and gpu is not None and gpu.capability < (8, 0):
        yield Finding(
            spec.place("hardware", f"compute capability {gpu.compute_capability}; bf16 needs 8.0"),
            f"falcon with ALiBi computes its positions in bf16, and {gpu.name} is older than Ampere",
            "write `hardware` of compute capability 8.0 or later, such as a100-40gb",
            (spec.model.label,),
        )


@rule("XP302", "tf32-before-ampere")
def tf32_before_ampere(spec: Spec) -> Iterator[Finding]:
    """TensorFloat-32 needs a GPU of compute capability 8.0 or later.

    Today: ValueError when the arguments are built. Source: transformers 5.23 `training_args.py`; executed.
    """
    gpu = spec.hardware.gpu
    if spec.flag("precision.tf32") and (gpu is None or gpu.capability < (8, 0)):
        where = "the CPU" if gpu is None else gpu.name
        yield Finding(
            spec.place("precision.tf32", f"{where} has no tf32"),
            f"tf32 on {where}",
            "leave `tf32` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP303", "fp16-on-cpu")
def fp16_on_cpu(spec: Spec) -> Iterator[Finding]:
    """fp16 mixed precision does nothing on a CPU: no autocast, no loss scaler, no message.

    Source: accelerate 1.15 `Accelerator.__init__` (`native_amp` stays false); executed.
    """
    if spec.on_cpu and spec.text("precision") == "fp16":
        place = spec.place("precision", "ignored on a CPU")
        yield Finding(
            place,
            "fp16 on the CPU trains in fp32",
            "write `precision fp32`",
            (spec.label("hardware", "the hardware"),),
            place.typed.replace("fp16", "fp32"),
        )


def _frozen(spec: Spec) -> bool:
    """Whether the model's own weights are not trained: adapters have a dtype of their own."""
    return spec.lora and not spec.names("lora.modules_to_save")


def _no_master(spec: Spec) -> bool:
    """Whether the optimizer steps the weights themselves: ddp always, FSDP where it has no mixed precision."""
    return spec.text("strategy") == "ddp" or (spec.sharded_by_fsdp and spec.text("precision") == "fp32")


def _not_fp32(spec: Spec) -> bool:
    """Whether XP307 speaks: fp32 is written, and the weights are narrower."""
    return spec.text("precision") == "fp32" and spec.written("precision") and spec.text("model.dtype") != "fp32"


@rule("XP304", "fp16-weights")
def fp16_weights(spec: Spec) -> Iterator[Finding]:
    """Weights in fp16 cannot be trained without a master copy: the gradient scaler refuses fp16 gradients.

    Today: "Attempting to unscale FP16 gradients" at the first optimizer step of fp16 training; in bf16 training no
    message, and Adam's epsilon is zero in fp16, so weights can turn to nan in one step. FSDP with mixed precision and
    DeepSpeed keep fp32 masters. Source: torch 2.13 `amp/grad_scaler.py`, accelerate 1.15 `fsdp_utils.py`; executed.
    """
    if spec.text("model.dtype") == "fp16" and _no_master(spec) and not _frozen(spec) and not _not_fp32(spec):
        strategy = spec.text("strategy")
        yield Finding(
            spec.place("model.dtype", f"no fp32 master copy under {strategy}"),
            f"fp16 weights under {strategy}",
            write("dtype = fp32"),
            (spec.label("precision"), spec.label("strategy")),
        )


@rule("XP326", "fp16-weights-in-bf16-autocast")
def mixed_halves(spec: Spec) -> Iterator[Finding]:
    """Quantized layers of 4 bits and rotations (oft) give back the type of what they were given, which weights in fp16
    make fp16; autocast to bf16 joins no such tensors, and positions that are rotated are joined.

    Today: RuntimeError in the first step ("Unexpected floating ScalarType in at::autocast::prioritize"). ZeRO and FSDP
    cast what they hold. Source: torch 2.13 `aten/src/ATen/autocast_mode.h` (`prioritize`); bitsandbytes 0.50
    `nn/modules.py`, peft 0.17 to 0.21 `tuners/oft/layer.py`; executed with qwen2 and llama.
    """
    if spec.text("model.dtype") != "fp16" or spec.text("precision") != "bf16" or spec.text("strategy") != "ddp":
        return
    oft = spec.flag("oft")
    if (spec.bits == 4 or oft) and spec.model.model_type not in UNROTATED:
        what = "rotations" if oft else "a base of 4 bits"
        yield Finding(
            spec.place("model.dtype", "autocast to bf16 joins no tensors in fp16"),
            f"fp16 weights with {what} in bf16",
            write("dtype = bf16"),
            (spec.label("precision"), spec.label("oft" if oft else "lora.bits")),
        )


@rule("XP305", "bf16-weights", "warning")
def bf16_weights(spec: Spec) -> Iterator[Finding]:
    """Weights in bf16 under ddp have no fp32 master: small updates are rounded away.

    Measured on one step at a learning rate of 1e-6: 2 % of the weights changed, against 100 % with fp32 weights. An
    error at 1e-5 and below. Source: accelerate 1.15 `prepare_model` (no upcast in the DDP branch); executed.
    """
    if spec.text("model.dtype") == "bf16" and _no_master(spec) and not _frozen(spec) and not _not_fp32(spec):
        lr, strategy = spec.real("optimizer.lr"), spec.text("strategy")
        yield Finding(
            spec.place("model.dtype", f"no fp32 master copy under {strategy}"),
            f"bf16 weights under {strategy} lose updates at a learning rate of {lr:g}",
            write("dtype = fp32"),
            (spec.label("optimizer.lr", "the learning rate"),),
            severity="error" if lr <= 1e-5 else "warning",
        )


@rule("XP307", "weights-narrower-than-the-precision")
def narrow_weights(spec: Spec) -> Iterator[Finding]:
    """Without mixed precision a model computes in the dtype of its weights, so bf16 weights are not trained in fp32.

    Nothing is raised. ddp and FSDP step the narrow weights themselves, ZeRO keeps fp32 masters and computes narrow all
    the same. Source: accelerate 1.15 `prepare_model`, `fsdp_utils.py`; deepspeed 0.19.8 and 0.16.8 `engine.py` (no cast
    where neither fp16 nor bf16 is on); executed.
    """
    if _not_fp32(spec) and not _frozen(spec):
        dtype = spec.text("model.dtype")
        yield Finding(
            spec.place("model.dtype", f"layers compute in {dtype}"),
            f"{dtype} weights under `precision fp32` compute in {dtype}",
            write("dtype = fp32"),
            (spec.label("precision", "asks for fp32"),),
        )


@rule("XP573", "zero3-loads-in-the-precision")
def loaded_wide(spec: Spec) -> Iterator[Finding]:
    """ZeRO-3 makes weights in the type of the run's precision, whatever the type is that a model is loaded in.

    A frozen base in bf16 takes its fp32 memory in a run of fp32, without a word. Quantized weights keep their bits.
    Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `zero/partition_parameters.py` (`Init`: the dtype of its configuration);
    executed.
    """
    dtype = spec.text("model.dtype")
    if spec.zero_stage == 3 and spec.lora and not spec.bits and spec.text("precision") == "fp32" and dtype != "fp32":
        yield Finding(
            spec.place("model.dtype", "becomes fp32"),
            f"{dtype} weights are fp32 under zero3 and `precision fp32`",
            write("dtype = fp32"),
            (spec.label("strategy"), spec.label("precision")),
        )


@rule("XP576", "zero-widens-the-score")
def widened_score(spec: Spec) -> Iterator[Finding]:
    """ZeRO-1 and 2 keep what is trained in one row of numbers, and adapters of a run in fp32 are float32.

    The score of a reward model becomes float32 with them, and what reaches it from a base in half precision is not.
    Today: RuntimeError in the first step ("expected m1 and m2 to have the same dtype"). A run in bf16 or fp16 casts
    all. Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `zero/stage_1_and_2.py` (`flatten_dense_tensors_aligned`);
    executed.
    """
    dtype = spec.text("model.dtype")
    scored = spec.lora and spec.method.scores
    if spec.zero_stage in (1, 2) and scored and spec.text("precision") == "fp32" and dtype != "fp32":
        yield Finding(
            spec.place("model.dtype", "what the base hands on"),
            f"the score of the reward model is float32 under {spec.text('strategy')}, and its base is {dtype}",
            write("dtype = fp32"),
            (spec.label("strategy"), spec.label("precision")),
        )


@rule("XP308", "fp16-zero-before-volta")
def fp16_zero_before_volta(spec: Spec) -> Iterator[Finding]:
    """DeepSpeed refuses fp16 on GPUs of compute capability 6.x, where it is deprecated.

    Today: ValueError when training begins, unless DS_ALLOW_DEPRECATED_FP16 is set, which a bundle does not do. Source:
    deepspeed 0.19.8 and 0.16.8 `accelerator/cuda_accelerator.py`, `runtime/engine.py`.
    """
    gpu = spec.hardware.gpu
    if gpu is not None and gpu.capability < (7, 0) and spec.zero_stage and spec.text("precision") == "fp16":
        place = spec.place("precision", f"{gpu.name} has compute capability {gpu.compute_capability}")
        yield Finding(
            place,
            f"fp16 with ZeRO on {gpu.name}",
            "write `precision fp32`, or `strategy ddp`",
            (spec.label("strategy", "DeepSpeed asks for 7.0"), spec.label("hardware", "the GPU")),
            place.typed.replace("fp16", "fp32"),
        )


@rule("XP306", "bf16-zero-on-cpu")
def bf16_zero_on_cpu(spec: Spec) -> Iterator[Finding]:
    """bf16 on a CPU is legal only with `use_cpu`, and `use_cpu` makes accelerate drop DeepSpeed for plain DDP.

    Today: ValueError when the arguments are built, or no ZeRO at all. Source: transformers 5.23 `training_args.py`,
    accelerate 1.15 `state.py`; executed.
    """
    if spec.on_cpu and spec.zero_stage and spec.text("precision") == "bf16":
        place = spec.place("precision", "not with ZeRO on a CPU")
        yield Finding(
            place,
            "bf16 with ZeRO on the CPU",
            "write `precision fp32`, or `strategy ddp`",
            (spec.label("strategy", "the strategy"), spec.label("hardware", "the hardware")),
            place.typed.replace("bf16", "fp32"),
        )
