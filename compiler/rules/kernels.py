"""Fused kernels and what they need (XP33x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.attention import family
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec


@rule("XP330", "liger-on-cpu")
def liger_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Liger's kernels are Triton programs: on a CPU the first step ends with "no triton driver".

    Source: liger-kernel 0.8.5; executed.
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

    Source: liger-kernel 0.8.5 `monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN`; executed.
    """
    known = family(spec)
    if spec.flag("memory.liger") and known is not None and not known.liger:
        yield Finding(
            spec.place("memory.liger", f"no kernels for {known.model_type}"),
            f"liger does nothing for {known.model_type}",
            "leave `liger` out",
            (spec.model.label,),
        )


@rule("XP332", "offload-activations-on-cpu")
def offload_activations_on_cpu(spec: Spec) -> Iterator[Finding]:
    """Activations can be moved to host memory only from a GPU; TRL fails while it builds the trainer.

    Source: trl 1.16 `models/activation_offloading.py`; executed (AttributeError).
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
    """8-bit and paged optimizers are bitsandbytes kernels for GPUs; paged states need unified memory.

    Source: transformers 5.23 `trainer_optimizer.py`; bitsandbytes 0.50.
    """
    name = spec.text("optimizer")
    if spec.on_cpu and ("8bit" in name or name.startswith("paged")):
        yield Finding(
            spec.place("optimizer", "bitsandbytes needs a GPU"),
            f"{name} on the CPU",
            "write `optimizer adamw`",
            (spec.label("hardware", "the hardware"),),
        )


RULES = (liger_on_cpu, liger_without_family, offload_activations_on_cpu, optimizer_without_gpu)
