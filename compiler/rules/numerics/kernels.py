"""Fused kernels and what they need (XP33x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able


@rule("XP330", "liger-on-cpu")
def liger_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Liger's kernels are Triton programs: on a CPU the first step ends with "no triton driver".

    Source: liger-kernel 0.8.5 and 0.7.0; executed.
    """
    if spec.on_cpu and spec.flag("memory.liger"):
        yield Finding(
            spec.place("memory.liger", "Triton needs a GPU"),
            "liger on the CPU",
            "leave `liger` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP331", "liger-without-the-family")
def liger_without_family(spec: Spec) -> Iterator[Finding]:
    """Liger patches the families of its table and silently does nothing for the others.

    Source: liger-kernel 0.8.5 and 0.7.0 `monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN`; executed.
    """
    kind, patched = spec.model.model_type, spec.stack.facts.liger_models
    if spec.flag("memory.liger") and kind is not None and kind not in patched:
        yield Finding(
            spec.place("memory.liger", f"no kernels for {kind}"),
            f"liger does nothing for {kind}",
            "leave `liger` out",
            (spec.model.label, spec.label("target", f"liger-kernel {spec.stack.pins['liger-kernel']}")),
        )


@rule("XP339", "liger-before-volta", "warning")
def liger_before_volta(spec: Spec) -> Iterator[Finding]:
    """Nobody tests Triton, which Liger's kernels are written in, on GPUs of compute capability below 7.0.

    Its compiler still makes code for 6.0 of Liger's norm, rotation and gated MLP, in fp32 and fp16 (Triton 3.9,
    liger-kernel 0.8.5; executed for the target, without the GPU). torch refuses Triton there altogether.
    """
    gpu = spec.hardware.gpu
    if spec.flag("memory.liger") and gpu is not None and gpu.capability < (7, 0):
        yield Finding(
            spec.place("memory.liger", f"{gpu.name} has compute capability {gpu.compute_capability}"),
            f"liger on {gpu.name}, which Triton is not tested on",
            "leave `liger` out",
            (spec.label("hardware", "the GPU"),),
        )


@rule("XP692", "liger-of-a-reward-model")
def liger_of_scores(spec: Spec) -> Iterator[Finding]:
    """trl 0.18 lets Liger put a language model's forward pass, with its fused loss, on a model that gives scores.

    Today: AttributeError, "'Qwen2ForSequenceClassification' object has no attribute 'lm_head'", at the first step. On
    trl 1.16 the runtime applies the layers' kernels alone. Source: liger-kernel 0.7.0 `monkey_patch.py`, transformers
    4.52.3 `trainer.py` (`use_liger_kernel`); executed, its layers' kernels left out.
    """
    if spec.flag("memory.liger") and spec.get("method") == "reward" and not spec.stack.facts.liger_scores:
        yield Finding(
            spec.place("memory.liger", "reads an output head"),
            f"liger of {spec.stack.name} cannot run a reward model",
            f"leave `liger` out, or write `target {able(lambda one: one.facts.liger_scores)}`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )


@rule("XP332", "offload-activations-on-cpu")
def offload_activations_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Activations can be moved to host memory only from a GPU; TRL fails while it builds the trainer.

    Source: trl 1.16 and 0.18 `models/activation_offloading.py`; executed (AttributeError).
    """
    if spec.on_cpu and spec.flag("memory.offload_activations"):
        yield Finding(
            spec.place("memory.offload_activations"),
            "activations are in host memory already",
            "leave `offload_activations` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP334", "optimizer-without-a-gpu")
def optimizer_without_gpu(spec: Spec) -> Iterator[Finding]:
    """GaLore's 8-bit AdamW and AdaLomo keep their states on a GPU, whatever the model runs on.

    Today: AssertionError, "Torch not compiled with CUDA enabled", at the first step. The optimizers of bitsandbytes
    0.50 run on a CPU, the paged ones too. Source: galore-torch 1.0 `adamw8bit.py`, lomo-optim 0.1.1 `adalomo.py`;
    executed on both targets.
    """
    name = spec.text("optimizer")
    if spec.on_cpu and (name.startswith("galore_adamw8bit") or name == "adalomo"):
        yield Finding(
            spec.place("optimizer", "its states need a GPU"),
            f"{name} on the CPU",
            "write `optimizer adamw`",
            (spec.label("hardware", "the hardware"),),
        )
