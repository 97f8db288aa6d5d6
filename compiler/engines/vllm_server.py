"""The vLLM server of a run: on a node of its own where an engine starts one, by a command of README.md elsewhere."""

from __future__ import annotations

from xpc.compiler.spec import Spec


def server_options(spec: Spec) -> str:
    """How `trainer/vllm_server.py` divides the GPUs of a node like those that train: over copies, each on some."""
    tensor = _gpus(spec)
    copies = 1 if spec.on_cpu else spec.hardware.processes // tensor
    return f"--tensor-parallel {tensor} --data-parallel {copies}"


def _gpus(spec: Spec) -> int:
    """GPUs that the weights need in 16 bits, which may take 60 % of each: 1, 2, 4 and so on."""
    gpu, facts = spec.hardware.gpu, spec.model.facts
    count = 1
    if gpu is not None and facts is not None:
        while count < spec.hardware.processes and facts.params * 2 > 0.6 * gpu.memory_gib * 2**30 * count:
            count *= 2
    return min(count, spec.hardware.processes) if gpu is not None else 1
