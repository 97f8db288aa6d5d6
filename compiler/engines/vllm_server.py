"""The vLLM server that generates completions for a run. Some engines start the server on a node of its own. For the
other engines, README.md has the command that starts it.
"""

from __future__ import annotations

from xpc.compiler.spec import Spec


def server_options(spec: Spec) -> str:
    """The options of `trainer/vllm_server.py` for tensor and data parallelism: how many GPUs share one copy of the
    model, and how many copies the node has.
    """
    tensor = _gpus(spec)
    copies = 1 if spec.on_cpu else spec.hardware.processes // tensor
    return f"--tensor-parallel {tensor} --data-parallel {copies}"


def _gpus(spec: Spec) -> int:
    """The number of GPUs that share one copy of the model. It is the smallest power of two with which the model's
    16-bit weights take at most 60 % of each GPU's memory.
    """
    gpu, facts = spec.hardware.gpu, spec.model.facts
    count = 1
    if gpu is not None and facts is not None:
        while count < spec.hardware.processes and facts.params * 2 > 0.6 * gpu.memory_gib * 2**30 * count:
            count *= 2
    return min(count, spec.hardware.processes) if gpu is not None else 1
