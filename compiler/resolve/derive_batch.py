"""Derive the global batch, the micro-batch and the accumulation that a spec does not state."""

from __future__ import annotations

from math import lcm

from xpc.compiler.language.items import DEFAULT
from xpc.compiler.language.methods import DEFAULT as USUAL
from xpc.compiler.language.strategies import SPREADS
from xpc.compiler.plan.quick_estimate import MemoryInputs, Micro, largest_micro
from xpc.compiler.registry.types import IMAGE_FAMILIES
from xpc.compiler.resolve.open_spec import OpenSpec

DEFAULT_GBS = 128
"""The number of sequences per optimizer step, if the spec states none of gbs, micro and accum."""


def global_batch(of: OpenSpec) -> None:
    """Set the global batch. If the spec states the accumulation, also set the micro-batch."""
    world, accum = of.replicas, of.get("batch.accum")
    gbs, micro = of.get("batch.gbs"), of.get("batch.micro")
    if gbs is None:
        gbs = _derived_gbs(of, world, micro, accum)
    if micro is None and accum is not None:
        of.set("batch.micro", max(1, gbs // (accum * world)), f"{gbs} / ({accum} x {world})")


def micro_batch(of: OpenSpec, planned: Micro | None) -> None:
    """Set the accumulation and the micro-batches of training and evaluation. `planned` is the micro-batch that the plan
    chose, or None.
    """
    world, gbs = of.replicas, of.get("batch.gbs") or 1
    micro = of.get("batch.micro") or _derived_micro(of, gbs, world, planned)
    if "batch.accum" not in of.values:
        of.set("batch.accum", max(1, gbs // (micro * world)), f"{gbs} / ({micro} x {world})")
    if of.method.grouped:
        from xpc.compiler.resolve import derive_method

        derive_method.batch(of, world, micro)
    of.default("eval.micro", micro, "as in training")


def _derived_gbs(of: OpenSpec, world: int, micro: int | None, accum: int | None) -> int:
    """Set the global batch, which follows from the micro-batch or is the default, and return it."""
    if micro is not None:
        gbs = micro * (accum or 1) * world
        of.set("batch.gbs", gbs, f"{micro} x {accum or 1} x {world}")
        return gbs
    unit = world * (accum or 1)
    if of.method.grouped:
        unit = lcm(unit, of.get("method.generations") or 1)  # a step must have complete groups of completions
    gbs = max(1, round(DEFAULT_GBS / unit)) * unit
    why = f"the multiple of {unit} nearest to {DEFAULT_GBS}" if unit > 1 else "a usual global batch"
    of.set("batch.gbs", gbs, why, DEFAULT)
    of.note(
        "batch.gbs", f"the spec states no global batch: xpc takes gbs={gbs}, {why}", f"`gbs={gbs}` states this choice"
    )
    return gbs


def _derived_micro(of: OpenSpec, gbs: int, world: int, planned: Micro | None) -> int:
    """Set the micro-batch, and return it: the one that the plan chose or, without a plan, the largest that fits."""
    if of.model.model_type in IMAGE_FAMILIES:
        of.set("batch.micro", 1, "the memory of images is not known")
        if gbs % world == 0:
            known = "the spec states no micro-batch: xpc takes micro=1, because the memory of images is not known"
            of.note("batch.micro", known, "`micro=1` states this choice")
        return 1
    chosen = planned or largest_micro(_memory_inputs(of), gbs // world)
    of.set("batch.micro", chosen.value, chosen.why)
    if gbs % world == 0:
        why = f"the spec states no micro-batch: xpc takes micro={chosen.value}, {chosen.why}"
        of.note("batch.micro", why, f"`micro={chosen.value}` states this choice")
    return chosen.value


def _memory_inputs(of: OpenSpec) -> MemoryInputs:
    """The quantities for the quick estimate of the memory."""
    strategy = str(of.get("strategy"))
    inputs = MemoryInputs(
        facts=of.model.facts,
        gpu=of.hardware.gpu,
        half=of.get("precision") != "fp32",
        stage=SPREADS.get(strategy, 0),
        world=(of.get("strategy.shard") if strategy == "hsdp" else None) or of.hardware.world,
        seq=-(-(of.get("batch.seq") or 1024) // (of.get("strategy.context_parallel") or 1)),
        checkpointing=of.flag("memory.checkpointing"),
        fused_loss=of.stack.facts.liger_fused_loss is False or of.flag("memory.liger"),
        offloaded=of.get("strategy.offload") in ("cpu", "optimizer"),
    )
    if of.get("method") == USUAL and "lora.rank" not in of.values:
        return inputs
    from xpc.compiler.resolve import derive_method

    return derive_method.memory(of, inputs)
