"""The node of its own that a vLLM server gets, where an engine starts one."""

from __future__ import annotations

from xpc.compiler.spec import Spec


def server_gpus(spec: Spec) -> int:
    """GPUs that a vLLM server needs for the weights in 16 bits, which may take 60 % of each: 1, 2, 4 and so on."""
    gpu, facts = spec.hardware.gpu, spec.model.facts
    count = 1
    if gpu is not None and facts is not None:
        while count < spec.hardware.processes and facts.params * 2 > 0.6 * gpu.memory_gib * 2**30 * count:
            count *= 2
    return min(count, spec.hardware.processes) if gpu is not None else 1
