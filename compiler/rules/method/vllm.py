"""Rules for generation by vLLM (XP337, XP658, XP680 to XP684, XP699)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.schema import path_of
from xpc.compiler.plan.divisors import largest
from xpc.compiler.rules.core.conditions import all_of, enabled, generates
from xpc.compiler.rules.core.heads import can_share, fitting_sizes
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able


def vllm_version(spec: Spec) -> str:
    """The version of vLLM that the bundle's requirements pin, such as `0.30.0`."""
    return spec.stack.requirements(vllm=True)["vllm"]


WHEN = all_of(generates, enabled("method.vllm"))


def _colocated(spec: Spec) -> bool:
    """Whether vLLM runs inside the training processes."""
    return spec.get("method.vllm.mode") != "server"


MOST_OF_A_GPU = 0.95


@rule("XP658", "vllm-takes-the-gpu")
def vllm_takes_the_gpu(spec: Spec) -> Iterator[Finding]:
    """A colocated vLLM must leave GPU memory for training: `gpu_memory` must be below 95 %.

    Why it is bad: vLLM reserves its share when the run starts, and the trained model, its gradients and activations
    need the rest.

    Without this rule: OutOfMemoryError, or vLLM refuses to start because the trained model already occupies a part of
    the memory.

    Source: vLLM `gpu_memory_utilization`; trl 1.16 `vllm_generation.py`.
    """
    share = spec.get("method.vllm.gpu_memory")
    if isinstance(share, Amount) and share.value >= MOST_OF_A_GPU and _colocated(spec):
        yield Finding(
            spec.location("method.vllm.gpu_memory"),
            f"vLLM would take {share.value:.0%} of each GPU, and training needs the rest",
            write("gpu_memory = 30%"),
        )


LEAST_CACHE = 1.1
"""vLLM's part of a GPU's memory should be at least this many times as large as the weights, so that some memory is left
for vLLM's cache.
"""


@rule("XP699", "vllm-cannot-hold-the-model")
def vllm_too_small(spec: Spec) -> Iterator[Finding]:
    """The share of a GPU that a colocated vLLM takes (`gpu_memory`) must hold the model's weights in bf16, divided by
    `tensor_parallel`, and a part of the cache of keys and values (at least a tenth of the weights' size).

    Why it is bad: vLLM loads a second copy of the weights into its share.

    Without this rule: vLLM stops with "No available memory for the cache blocks", after the model is loaded twice.

    Source: vLLM `gpu_memory_utilization`, `worker/gpu_worker.py` (`determine_available_memory`); read, not run.
    """
    share, gpu, facts = spec.get("method.vllm.gpu_memory"), spec.hardware.gpu, spec.model.facts
    if not isinstance(share, Amount) or gpu is None or facts is None or not _colocated(spec):
        return
    weights = facts.params * 2 / 2**30 / (spec.get("method.vllm.tensor_parallel") or 1)
    if share.value * gpu.memory_gib < weights * LEAST_CACHE:
        least = -(-100 * weights * 1.5 // gpu.memory_gib)
        fits = least < 100 * MOST_OF_A_GPU
        yield Finding(
            spec.location("method.vllm.gpu_memory", f"{share.value * gpu.memory_gib:.1f} GiB"),
            f"the weights of {spec.model.name} take {weights:.1f} GiB, more than vLLM's share of {gpu.name} can hold",
            write(f"gpu_memory = {least:.0f}%") if fits else "write `tensor_parallel = 2` in `vllm`, or another GPU",
        )


@rule("XP680", "vllm-without-gpu")
def vllm_on_cpu(spec: Spec) -> Iterator[Finding]:
    """vLLM inside the training processes needs a GPU.

    Why it is bad: the published wheels of vLLM are built for CUDA.

    Without this rule: vLLM's engine raises an error after the model is loaded.

    Source: vLLM's published wheels.
    """
    if spec.on_cpu and _colocated(spec):
        yield Finding(
            spec.location("method.vllm", "needs a GPU"),
            "vLLM cannot generate on the CPU",
            "leave `vllm` out; transformers then generates",
            (spec.label("hardware", "the hardware"),),
        )


BLACKWELL, FOR_BLACKWELL = (10, 0), (2, 8)
"""BLACKWELL is the compute capability of the first Blackwell GPU, and FOR_BLACKWELL the first version of torch whose
default wheels have kernels for Blackwell.
"""


def _version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version such as `2.6.0`."""
    return tuple(map(int, text.split(".")[:2]))


@rule("XP337", "vllm-on-an-old-gpu")
def vllm_capability(spec: Spec) -> Iterator[Finding]:
    """vLLM needs a GPU of compute capability 7.5 or later. Versions before vLLM 0.21 also run on 7.0 (V100). The GPU
    must not be too new, either: vLLM 0.8 (trl-0.18) needs torch 2.6, whose wheels have no kernels for Blackwell (B200,
    RTX 5090).

    Why it is bad: vLLM's and torch's wheels have no kernels for older or newer GPUs.

    Without this rule: "no kernel image is available" when vLLM starts, after the model is loaded.

    Source: vLLM's installation page, `docs/getting_started/installation/gpu.cuda.inc.md`; torch's release notes (2.7
    has the first wheels for Blackwell, 2.8 the first default wheels).
    """
    gpu, needs = spec.hardware.gpu, spec.stack.facts.vllm_capability
    torch = spec.stack.requirements(vllm=True)["torch"]
    if gpu is not None and _colocated(spec) and gpu.capability >= BLACKWELL and _version(torch) < FOR_BLACKWELL:
        newer = able(lambda one: _version(one.requirements(vllm=True)["torch"]) >= FOR_BLACKWELL)
        yield Finding(
            spec.location(
                "method.vllm", f"vLLM {vllm_version(spec)} needs torch {torch}, which has no kernels for {gpu.name}"
            ),
            f"the vLLM of {spec.stack.name} cannot run on {gpu.name}",
            f"write `target {newer}`, or leave `vllm` out; transformers then generates",
            (spec.label("hardware", "the GPU"), spec.label("target")),
        )
    if gpu is not None and _colocated(spec) and gpu.capability < needs:
        has = f"{gpu.name} has compute capability {gpu.compute_capability}"
        yield Finding(
            spec.location("method.vllm", f"{has}, vLLM {vllm_version(spec)} needs {needs[0]}.{needs[1]}"),
            f"vLLM cannot run on {gpu.name}",
            "leave `vllm` out; transformers then generates",
            (spec.label("hardware", "the GPU"),),
        )


@rule("XP681", "vllm-groups-do-not-divide")
def tensor_parallel(spec: Spec) -> Iterator[Finding]:
    """`tensor_parallel` of a colocated vLLM must divide the number of training processes. It must also divide the
    model's attention heads, and it must divide its key-value heads or be a multiple of them. For example, vLLM can run
    Qwen2.5 7B, which has 28 heads, on 1, 2 or 4 GPUs, but not on 8.

    Why it is bad: a colocated vLLM that spans several GPUs shares them with a group of training processes, and all
    groups must have the same size. The GPUs divide the heads of each layer equally.

    Without this rule: ValueError when the trainer starts vLLM, after the model is loaded.

    Source: trl 1.16 `vllm_generation.py`, trl 0.18 `grpo_trainer.py`; vLLM `config/model.py`
    (`verify_with_parallel_config`), vLLM issue 2652.
    """
    refused = list(_heads(spec))
    yield from refused
    size, world = spec.get("method.vllm.tensor_parallel"), spec.hardware.world
    if isinstance(size, int) and _colocated(spec) and world % size and not refused:
        nearest = largest(size - 1, world)
        yield Finding(
            spec.location("method.vllm.tensor_parallel", f"{world} / {size} = {world / size:.2f}"),
            f"{world} processes cannot be divided into groups of {size}",
            write(f"tensor_parallel = {nearest}"),
            (spec.label("hardware", f"{world} processes"),),
        )


def _heads(spec: Spec) -> Iterator[Finding]:
    """Report `tensor_parallel` if the model's attention heads cannot be divided by it."""
    size, facts = spec.get("method.vllm.tensor_parallel"), spec.model.facts
    if not isinstance(size, int) or facts is None or not _colocated(spec):
        return
    if can_share(facts.heads, facts.kv_heads, size):
        return
    fits = max(one for one in fitting_sizes(facts.heads, facts.kv_heads, size - 1) if spec.hardware.world % one == 0)
    yield Finding(
        spec.location("method.vllm.tensor_parallel", f"{facts.heads} heads, {facts.kv_heads} key heads"),
        f"{size} GPUs cannot share {facts.heads} heads with {facts.kv_heads} key heads",
        write(f"tensor_parallel = {fits}"),
        (spec.model.label,),
    )


@rule("XP682", "vllm-over-8-bits")
def eight_bits(spec: Spec) -> Iterator[Finding]:
    """A colocated vLLM cannot be used with a base of 8 bits.

    Why it is bad: vLLM can quantize a model to 4 bits while loading it, but not to 8 bits, so it cannot generate with
    the same base as the trained model.

    Without this rule: ValueError when the trainer starts vLLM, after the model is loaded.

    Source: trl 1.16 `vllm_generation.py`.
    """
    if spec.bits == 8 and _colocated(spec) and spec.stack.facts.colocated_vllm_quantizes:
        yield Finding(
            spec.location("lora.bits", "not supported by vLLM"),
            "a colocated vLLM cannot load a base of 8 bits",
            write("bits = 4", ", or leave `bits` out"),
            (spec.label("method.vllm", "colocated"),),
        )


@rule("XP683", "vllm-too-short")
def too_short(spec: Spec) -> Iterator[Finding]:
    """vLLM's `max_length` must have room for the prompt and the completion, and must not be longer than the context of
    the model.

    Why it is bad: tokens of a completion that do not fit are never generated, and the model has no positions after its
    context.

    Without this rule: if `max_length` is too short, nothing is reported; completions end at `max_length` and count as
    truncated. If `max_length` is too long, vLLM stops after the model is loaded: "User-specified max_model_len is
    greater than the derived max_model_len".

    Source: trl 1.16 `vllm_generation.py` (`max_model_len`); vLLM `config/model.py`
    (`_get_and_verify_max_len`).
    """
    longest, completion = spec.get("method.vllm.max_length"), spec.get("method.max_completion")
    prompt = spec.get("method.max_prompt") if spec.written("method.max_prompt") else None
    if not isinstance(longest, int) or not isinstance(completion, int):
        return
    need = completion + (prompt if isinstance(prompt, int) else 1)
    context = spec.model.facts.context if spec.model.facts is not None and spec.rope is None else None
    if context is not None and context < longest:
        yield Finding(
            spec.location("method.vllm.max_length", f"{spec.model.name} has a context of {context}"),
            "vLLM's context is longer than the model's",
            write(f"max_length = {context}"),
        )
    if longest < need:
        yield Finding(
            spec.location("method.vllm.max_length", f"{prompt or 'a prompt'} + {completion:,} tokens do not fit"),
            "vLLM's context is too short for a prompt and its completion",
            write(f"max_length = {need}"),
            (spec.label("method.max_completion"), spec.label("method.max_prompt")),
            severity=None if longest <= completion else "warning",
        )


@rule("XP684", "settings-of-another-vllm", "warning")
def another_mode(spec: Spec) -> Iterator[Finding]:
    """Each setting of vLLM should be used only in the mode (`colocate` or `server`) that reads the setting. A colocated
    vLLM has no port and no timeout. The memory and the parallelism of a server are set by the command that starts the
    server.

    Why it is bad: a vLLM in the mode `colocate` ignores settings of the mode `server`, and the other way round.

    Without this rule: nothing is reported; each argument is read in one mode only.

    Source: trl 1.16 `vllm_generation.py`, trl 0.18 `grpo_trainer.py`.
    """
    server = not _colocated(spec)
    for name in ("gpu_memory", "tensor_parallel", "max_length", "sleep") if server else ("port", "timeout"):
        path = path_of(f"method.vllm.{name}")
        if spec.written(path) and spec.get(path) is not False:
            yield Finding(
                spec.location(path, "ignored in this mode"),
                f"`{name}` does nothing for a vLLM {'server' if server else 'inside the training processes'}",
                f"leave `{name}` out, or write `mode = {'colocate' if server else 'server'}`",
                (spec.label("method.vllm.mode", "the mode"),),
            )
