"""Generation by vLLM (XP680 to XP684)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.schema import path_of
from xpc.compiler.rules.core.conditions import both, generates, on
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec


def vllm_version(spec: Spec) -> str:
    """The version that the run's requirements pin."""
    return spec.stack.requirements(vllm=True)["vllm"]


WHEN = both(generates, on("method.vllm"))


def _colocated(spec: Spec) -> bool:
    return spec.get("method.vllm.mode") != "server"


@rule("XP680", "vllm-without-gpu")
def vllm_on_cpu(spec: Spec) -> Iterator[Finding]:
    """vLLM's wheels generate on GPUs; on a CPU the run would end when vLLM looks for one.

    Today: an error of vLLM's engine after the model is loaded. Source: vllm's published wheels are built for CUDA.
    """
    if spec.on_cpu and _colocated(spec):
        yield Finding(
            spec.place("method.vllm", "needs a GPU"),
            "vLLM cannot generate on the CPU",
            "leave `vllm` out: transformers generates",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP337", "vllm-on-an-old-gpu")
def vllm_capability(spec: Spec) -> Iterator[Finding]:
    """vLLM's wheels have kernels for GPUs of compute capability 7.5 or later (vLLM 0.21), 7.0 before that.

    Today: "no kernel image is available" when vLLM starts, after the model is loaded. Source: vLLM's installation
    page, `docs/getting_started/installation/gpu.cuda.inc.md`.
    """
    gpu, needs = spec.hardware.gpu, spec.stack.facts.vllm_capability
    if gpu is not None and _colocated(spec) and gpu.capability < needs:
        has = f"{gpu.name} has compute capability {gpu.compute_capability}"
        yield Finding(
            spec.place("method.vllm", f"{has}, vLLM {vllm_version(spec)} needs {needs[0]}.{needs[1]}"),
            f"vLLM on {gpu.name}",
            "leave `vllm` out: transformers generates",
            (spec.label("hardware", "the GPU"),),
        )


@rule("XP681", "vllm-groups-do-not-divide")
def tensor_parallel(spec: Spec) -> Iterator[Finding]:
    """A colocated vLLM that spans several GPUs takes them from the training processes, in groups of one size.

    Today: ValueError when the trainer starts vLLM, after the model is loaded. Source: trl 1.16 `vllm_generation.py`,
    trl 0.18 `grpo_trainer.py`.
    """
    size, world = spec.get("method.vllm.tensor_parallel"), spec.hardware.world
    if isinstance(size, int) and _colocated(spec) and world % size:
        from xpc.compiler.plan.divisors import largest

        nearest = largest(size - 1, world)
        yield Finding(
            spec.place("method.vllm.tensor_parallel", f"{world} / {size} = {world / size:.2f}"),
            f"{world} processes do not make groups of {size}",
            write(f"tensor_parallel = {nearest}"),
            (spec.label("hardware", f"{world} processes"),),
        )


@rule("XP682", "vllm-over-8-bits")
def eight_bits(spec: Spec) -> Iterator[Finding]:
    """vLLM quantizes to 4 bits while it loads, not to 8, so a colocated one cannot have the base that is trained.

    Today: ValueError when the trainer starts vLLM, after the model is loaded. Source: trl 1.16 `vllm_generation.py`.
    """
    if spec.bits == 8 and _colocated(spec) and spec.stack.facts.colocated_vllm_quantizes:
        yield Finding(
            spec.place("lora.bits", "not by vLLM"),
            "a colocated vLLM cannot load a base of 8 bits",
            write("bits = 4", ", or leave `bits` out"),
            (spec.label("method.vllm", "colocated"),),
        )


@rule("XP683", "vllm-too-short")
def too_short(spec: Spec) -> Iterator[Finding]:
    """vLLM's context holds the prompt and the completion; what does not fit of a completion is never generated.

    Today, silently: completions end at the context's end, and count as cut. Source: trl 1.16 `vllm_generation.py`
    (`max_model_len`).
    """
    longest, completion = spec.get("method.vllm.max_length"), spec.get("method.max_completion")
    prompt = spec.get("method.max_prompt")
    if not isinstance(longest, int) or not isinstance(completion, int):
        return
    need = completion + (prompt if isinstance(prompt, int) else 1)
    if longest < need:
        yield Finding(
            spec.place("method.vllm.max_length", f"{prompt or 'a prompt'} + {completion:,} tokens do not fit"),
            "vLLM's context is too short for prompt and completion",
            write(f"max_length = {need}"),
            (spec.label("method.max_completion"), spec.label("method.max_prompt")),
            severity=None if longest <= completion else "warning",
        )


@rule("XP684", "settings-of-another-vllm", "warning")
def another_mode(spec: Spec) -> Iterator[Finding]:
    """A colocated vLLM has no port and no timeout, and a server is started with its own memory and parallelism.

    Today, silently: the argument is read in the other mode only. Source: trl 1.16 `vllm_generation.py`, trl 0.18
    `grpo_trainer.py`.
    """
    server = not _colocated(spec)
    for name in ("gpu_memory", "tensor_parallel", "max_length", "sleep") if server else ("port", "timeout"):
        path = path_of(f"method.vllm.{name}")
        if spec.written(path) and spec.get(path) is not False:
            yield Finding(
                spec.place(path, "never read"),
                f"`{name}` with a vLLM {'server' if server else 'inside the processes'}",
                f"leave `{name}` out, or write `mode = {'colocate' if server else 'server'}`",
                (spec.label("method.vllm.mode", "the mode"),),
            )
