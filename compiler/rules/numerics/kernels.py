"""Rules about fused kernels: which hardware and which models they need (XP33x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able


@rule("XP330", "liger-on-cpu")
def liger_on_cpu(spec: Spec) -> Iterator[Finding]:
    """`liger` needs a GPU.

    Why it is bad: Liger's kernels are Triton programs, and Triton has no CPU driver.

    Without this rule: the first step ends with "no triton driver".

    Source: liger-kernel 0.8.5 and 0.7.0; confirmed by running it.
    """
    if spec.on_cpu and spec.flag("memory.liger"):
        yield Finding(
            spec.location("memory.liger", "Triton needs a GPU"),
            "liger cannot run on the CPU",
            "leave `liger` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP331", "liger-without-the-family")
def liger_without_family(spec: Spec) -> Iterator[Finding]:
    """`liger` needs a model family for which Liger has kernels.

    Why it is bad: `liger` changes nothing for a family that is not in Liger's table.

    Without this rule: nothing is reported.

    Source: liger-kernel 0.8.5 and 0.7.0 `monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN`; confirmed by running it.
    """
    kind, patched = spec.model.model_type, spec.stack.facts.liger_models
    if spec.flag("memory.liger") and kind is not None and kind not in patched:
        yield Finding(
            spec.location("memory.liger", f"no kernels for {kind}"),
            f"liger does nothing for {kind}",
            "leave `liger` out",
            (spec.model.label, spec.label("target", f"liger-kernel {spec.stack.pins['liger-kernel']}")),
        )


@rule("XP339", "liger-before-volta", "warning")
def liger_before_volta(spec: Spec) -> Iterator[Finding]:
    """`liger` should run on a GPU of compute capability 7.0 or later.

    Why it is bad: Triton, in which Liger's kernels are written, is not tested on older GPUs.

    Without this rule: Triton still compiles Liger's norm, rotary embedding and gated MLP for capability 6.0, in fp32
    and fp16, but is not tested there.

    Source: Triton 3.9, liger-kernel 0.8.5; confirmed by compiling the kernels for capability 6.0, without such a GPU.
    """
    gpu = spec.hardware.gpu
    if spec.flag("memory.liger") and gpu is not None and gpu.capability < (7, 0):
        yield Finding(
            spec.location("memory.liger", f"{gpu.name} has compute capability {gpu.compute_capability}"),
            f"liger runs on Triton, which is not tested on {gpu.name}",
            "leave `liger` out",
            (spec.label("hardware", "the GPU"),),
        )


@rule("XP692", "liger-of-a-reward-model")
def liger_of_scores(spec: Spec) -> Iterator[Finding]:
    """`liger` cannot be used with a reward model on trl 0.18. It can be used on trl 1.16, where the bundle's runtime
    replaces layers by Liger's kernels and leaves the model's forward pass as it is.

    Why it is bad: trl 0.18 lets Liger replace the model's forward pass by a language model's forward pass with a fused
    loss. Such a forward pass needs an output head, which a model that gives scores does not have.

    Without this rule: AttributeError, "'Qwen2ForSequenceClassification' object has no attribute 'lm_head'", at the
    first step.

    Source: liger-kernel 0.7.0 `monkey_patch.py`, transformers 4.52.3 `trainer.py` (`use_liger_kernel`); confirmed by
    running it with Liger's kernels for layers switched off.
    """
    if spec.flag("memory.liger") and spec.get("method") == "reward" and not spec.stack.facts.liger_scores:
        yield Finding(
            spec.location("memory.liger", "needs an output head"),
            f"liger cannot run a reward model on {spec.stack.name}",
            f"leave `liger` out, or write `target {able(lambda one: one.facts.liger_scores)}`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )


@rule("XP332", "offload-activations-on-cpu")
def offload_activations_on_cpu(spec: Spec) -> Iterator[Finding]:
    """`offload_activations` needs a GPU.

    Why it is bad: activations can be moved to host memory only from a GPU.

    Without this rule: AttributeError while TRL builds the trainer.

    Source: trl 1.16 and 0.18 `models/activation_offloading.py`; confirmed by running it.
    """
    if spec.on_cpu and spec.flag("memory.offload_activations"):
        yield Finding(
            spec.location("memory.offload_activations"),
            "on the CPU, activations are in host memory already",
            "leave `offload_activations` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP334", "optimizer-without-a-gpu")
def optimizer_without_gpu(spec: Spec) -> Iterator[Finding]:
    """GaLore's 8-bit AdamW and AdaLomo need a GPU. The optimizers of bitsandbytes 0.50 run on a CPU, including the
    paged ones.

    Why it is bad: GaLore's 8-bit AdamW and AdaLomo always keep their states on a GPU, even if the model is on a CPU.

    Without this rule: AssertionError, "Torch not compiled with CUDA enabled", at the first step.

    Source: galore-torch 1.0 `adamw8bit.py`, lomo-optim 0.1.1 `adalomo.py`; confirmed by running it on trl-1.16 and
    trl-0.18.
    """
    name = spec.text("optimizer")
    if spec.on_cpu and (name.startswith("galore_adamw8bit") or name == "adalomo"):
        yield Finding(
            spec.location("optimizer", "its states need a GPU"),
            f"{name} cannot run on the CPU",
            "write `optimizer adamw`",
            (spec.label("hardware", "the hardware"),),
        )
