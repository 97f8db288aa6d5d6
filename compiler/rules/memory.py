"""What the model's states need of a GPU, whatever the micro-batch (XP480)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.schema import SPREADS
from xpc.compiler.language.setting import Path
from xpc.compiler.plan import GIB
from xpc.compiler.registry import ModelFacts
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec

MOMENTS = {"adamw": 2, "adamw_fused": 2, "adamw_torch": 2, "lion": 1}
"""Moments as large as the weights; other optimizers keep less, or pages in host memory, and count as nothing."""
OFFLOADS = {"none": 0, "optimizer": 1, "cpu": 2}
WAYS = (
    ("zero1", 0), ("zero2", 0), ("zero3", 0), ("zero2", 1), ("zero3", 1), ("zero3", 2),
)  # fmt: skip
"""The ways to hold more, from the one that costs least."""


def least(spec: Spec, facts: ModelFacts, strategy: str, offload: int) -> float:
    """Bytes that every process holds of weights, gradients and optimizer states at the least, without a batch.

    Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3): 2 + 2 + 12 bytes a parameter in half precision under
    DeepSpeed, 4 + 4 + 8 in fp32, by autocast and under FSDP, which keep fp32 weights; 2 + 2 + 4 where the weights
    themselves are in half precision. A frozen copy, the reference of some methods, counts as weights; so
    does a teacher.
    """
    stage, world = SPREADS.get(strategy, 0), max(1, spec.hardware.world)
    spread = spec.integer("strategy.shard") if strategy == "hsdp" and spec.get("strategy.shard") else world
    half = spec.text("precision") != "fp32"
    deepspeed = strategy.startswith("zero")
    element = 2 if (half and deepspeed) or spec.get("model.dtype") in ("bf16", "fp16") else 4
    weights, moments = float(element), MOMENTS.get(spec.text("optimizer"), 0)
    taught = 0.0 if spec.teacher is None or spec.teacher.facts is None else float(spec.teacher.facts.params)
    taught *= (4 if spec.get("method.teacher_dtype") == "fp32" else 2) / (spread if stage == 3 else 1)
    if spec.lora or spec.flag("freeze"):
        bits = spec.bits
        frozen = bits / 8 if bits else weights
        return 0.0 if offload == 2 else taught + facts.params * frozen / (spread if stage == 3 else 1)
    master = 4 if half and deepspeed else 0
    gradients = 0.0 if spec.text("optimizer").endswith(("lomo", "layerwise")) else float(element)
    states = moments * (4 if deepspeed else element) + master
    if offload == 2:
        return 0.0
    held = weights / (spread if stage == 3 else 1)
    if not offload:
        held += gradients / (spread if stage >= 2 else 1) + states / (spread if stage >= 1 else 1)
    copies = spec.method.references(spec.get) * element / (spread if stage == 3 else 1)
    return taught + facts.params * (held + copies)


@rule("XP480", "states-beyond-the-card", reads=("method.beta", "method.precompute", "method.reference_free"))
def states_beyond_the_card(spec: Spec) -> Iterator[Finding]:
    """Weights, gradients and optimizer states alone pass a GPU's memory, before the first token is there.

    Counted is what the strategy, the offload, the adapters, the optimizer and the precision leave on every process, and
    no activations: what is refused here cannot run. Today: OutOfMemoryError while the model is loaded, or at the first
    optimizer step. Source: Rajbhandari et al. 2020, arXiv:1910.02054; optimizers that keep less than AdamW count less.
    """
    facts, gpu = spec.model.facts, spec.hardware.gpu
    if facts is None or gpu is None or "quantization_config" in spec.model.config:
        return
    if any("master_weights" in name or "optimizer_states" in name for name in spec.extra.get("deepspeed", {})):
        return
    strategy, room = spec.text("strategy"), gpu.memory_gib * GIB
    offload = OFFLOADS.get(str(spec.get("strategy.offload")), 0)
    held = least(spec, facts, strategy, offload)
    if held <= room:
        return
    ways = WAYS if spec.hardware.world > 1 else tuple(way for way in WAYS if way[1])
    fitting = next(((name, off) for name, off in ways if least(spec, facts, name, off) <= room * 0.9), None)
    written: Path = "strategy" if spec.written("strategy") else "hardware"
    if fitting is None:
        help = "write `lora`, a smaller model or more GPUs" if not spec.lora else "write a smaller model or more GPUs"
    else:
        name, off = fitting
        help = f"write `strategy {name}{('', '(offload=optimizer)', '(offload=cpu)')[off]}`"
    yield Finding(
        spec.place(written, f"{held / GIB:.1f} GiB of states on every process"),
        f"{facts.alias} under {strategy} needs more than the {gpu.memory_gib:g} GiB of {gpu.name}",
        help,
        (spec.model.label, spec.label("hardware", "the card") if written == "strategy" else None),
    )
