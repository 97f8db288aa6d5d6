"""The floating-point operations per token, and the peak speed of a GPU. A run's utilisation is computed from these two
numbers and the measured speed.
"""

from __future__ import annotations

from xpc.compiler.plan.frozen import trained_part
from xpc.compiler.registry.types import Gpu
from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Flops


def flops(spec: Spec) -> Flops | None:
    """The operations per token, and the GPU's peak. None if the model's sizes are unknown.

    In the forward pass, a token costs 2 operations for each active parameter, and 4 x layers x width x length
    operations for attention. In the backward pass, a layer costs as much as in the forward pass (its attention twice as
    much) if a gradient passes through it, and each parameter that gets a gradient costs 2 more operations. Adapters are
    small and not counted. The peak of a run in fp8 is unknown, because its attention and its first and last layer
    compute in bf16.
    """
    facts = spec.model.facts
    if facts is None:
        return None
    trained, through = (0.0, 1.0) if spec.lora else (1.0, 1.0)
    if spec.flag("freeze") and not spec.lora:
        part = trained_part(spec, facts)
        trained, through = part.trained / max(1, facts.params), part.layers / max(1, facts.layers)
    gpu = spec.hardware.gpu
    return {
        "token": 2.0 * (1.0 + through + trained) * (facts.active_params or facts.params),
        "length": 4.0 * (1.0 + 2.0 * through) * facts.layers * (facts.heads * facts.head_dim + facts.values) / 2,
        "peak": None if gpu is None or spec.text("precision") == "fp8" else peak(gpu, spec.text("precision")),
    }


def peak(gpu: Gpu, precision: str) -> float:
    """The peak speed of a GPU as its vendor states it: operations per second for dense matrices, in the precision of
    the run.
    """
    known = {"fp32": gpu.fp32_tflops, "bf16": gpu.bf16_tflops, "fp16": gpu.fp16_tflops}
    return (known.get(precision) or gpu.fp16_tflops) * 1e12
