"""Predict the host memory (RAM) that the processes of one machine need, in bytes.

Three phases are counted. While the model is loaded, a weight whose dtype differs from the checkpoint's takes memory in
every process that loads it; other weights are pages of the checkpoint's file, which all processes share. While the run
trains, the states that a strategy offloads are in host memory. A complete model is collected in one process to save it.
The interpreter and its libraries (a third of a GiB in each process on a CPU) and rows, which are memory-mapped, are not
counted.
"""

from __future__ import annotations

from math import ceil

from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.load import Load, UnknownMemory
from xpc.compiler.plan.states import SUB_GROUP
from xpc.compiler.spec import Spec


def host_memory(spec: Spec, load: Load) -> dict[str, float]:
    """The bytes of one machine in each phase (`load`, `train`, `save`) that needs host memory."""
    local = spec.hardware.processes
    offloaded, saved = local * _offloaded(load), _saving(spec, load)
    found = {"load": _loading(spec, load, local), "train": offloaded, "save": saved and offloaded + saved}
    return {phase: held for phase, held in found.items() if held}


def host_peak(spec: Spec) -> int:
    """The bytes of the phase that needs the most host memory. 0 if the sizes of the model are unknown."""
    try:
        return round(max(host_memory(spec, load_of(spec)).values(), default=0.0))
    except UnknownMemory:
        return 0


def _loading(spec: Spec, load: Load, local: int) -> float:
    """The bytes of weights while `local` processes load the model.

    bitsandbytes quantizes on the GPU, and under ZeRO-3 a weight is sharded on the GPU when it is created
    (`deepspeed.zero.Init`), so these runs need no memory here. Under FSDP, one process loads the weights if the stack's
    `fsdp_loads_once` is true. Otherwise, FSDP2 also converts the trained weights of every process to float32
    (accelerate 1.15, `fsdp2_prepare_model`).
    """
    if spec.bits or (load.engine == "deepspeed" and load.stage == 3):
        return 0.0
    once = load.engine == "fsdp" and spec.stack.facts.fsdp_loads_once
    converted = load.engine == "fsdp" and not load.fsdp1 and not once and load.weight == 4.0
    loaded, stored = 4.0 if converted or spec.text("model.dtype") == "fp32" else 2.0, load.facts.dtype == "float32"
    copies = (1 + spec.method.references(spec.get) * (not spec.lora)) * (1 if once else local)
    return copies * load.facts.params * loaded * (loaded != (4.0 if stored else 2.0))


def _offloaded(load: Load) -> float:
    """The bytes of one process in host memory while it trains. DeepSpeed pins most of them, and torch rounds each
    pinned tensor up to a power of two (ATen/core/CachingHostAllocator.h).

    ZeRO-2 pins its share of the weights (in float32 and in the dtype of the computation) and of the gradients, and adds
    up the gradients of several micro-batches in a further copy (DeepSpeed 0.19.8, stage_1_and_2.py). ZeRO-3 pins
    gradients in both dtypes, the float32 ones by sub-groups (stage3.py). FSDP offloads weights, gradients and states.
    """
    if not load.offload:
        return 0.0
    tuned = load.adapters
    share = (load.trained + (0.0 if tuned is None else tuned.params)) / load.shard
    base = load.facts.params * load.weight / load.shard if load.offload == 2 else 0.0
    states = load.moments * share
    if load.engine == "fsdp":
        own = load.weight if tuned is None else tuned.element
        return base + states + own * share * (1 if tuned is None else 2)
    half = pinned(load.element * share)
    if load.stage < 3:
        return states + 2 * pinned(4 * share) + half * (2 if load.accumulates else 1)
    groups = ceil(share / SUB_GROUP) or 1
    return states + 4 * share + groups * pinned(4 * share / groups) + half + (pinned(base) if base else 0.0)


def _saving(spec: Spec, load: Load) -> float:
    """The bytes of the model that one process collects to save it: in the dtype of the computation under ZeRO-3, and in
    float32 under FSDP with `state_dict = full`, where the optimizer's states are collected next.
    """
    if load.stage < 3 or load.adapters is not None or load.shard == 1:
        return 0.0
    if load.engine == "deepspeed":
        return float(load.facts.params * load.element)
    full = spec.text("strategy.state_dict") == "full"
    return max(load.facts.params * load.weight, load.trained * load.moments) if full else 0.0


def pinned(size: float) -> float:
    """The bytes that torch takes for a pinned tensor: the next power of two."""
    return float(1 << ceil(size - 1).bit_length()) if size else 0.0
