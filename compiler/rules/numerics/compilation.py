"""`compile`, and compilation by `extra trl`: what torch.compile needs, and which stack compiles what (XP34x, XP35x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import either, extra, on
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.grammar.diagnostic import Label

WHEN = either(on("model.compile"), extra("trl"))

MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""torch 2.13 `_inductor.list_mode_options`."""
GRAPHS = ("reduce-overhead", "max-autotune")


@rule("XP344", "compiled-twice")
def compiled_twice(spec: Spec) -> Iterator[Finding]:
    """`compile` compiles layer by layer, and `torch_compile` the whole model; accelerate does one of them.

    `torch_compile_mode` and `torch_compile_backend` say how either compiles. Today: the environment decides, and no
    line says so. Source: accelerate 1.15 `accelerator.py` `prepare_model`, `TorchDynamoPlugin`.
    """
    if spec.flag("model.compile") and spec.extra_value("trl", "torch_compile") is not None:
        yield Finding(
            spec.extra_place("trl", "torch_compile", "the whole model"),
            "`compile` beside `torch_compile`",
            "leave `torch_compile` out",
            (spec.label("model.compile", "each layer on its own"),),
        )


@rule("XP345", "layers-not-compiled")
def layers_not_compiled(spec: Spec) -> Iterator[Finding]:
    """accelerate 1.4 cannot compile layer by layer, and accelerate 1.11 not beside FSDP's hooks.

    Today: accelerate 1.4 compiles the whole model in silence; accelerate 1.11 gives FSDP2 compiled layers whose hooks
    never run, so that their weights are not gathered one by one. Source: accelerate 1.15 `utils/other.py`
    (`compile_regions_fsdp2` and its reason), 1.11 `accelerator.py`, 1.4 `utils/dataclasses.py`; executed for 1.4.
    """
    way = "fsdp" if spec.sharded_by_fsdp else "zero" if spec.zero_stage else "plain"
    reach = spec.stack.facts.compile_layers
    if spec.flag("model.compile") and way not in reach:
        beside = "" if not reach else f" beside {spec.text('strategy')}"
        yield Finding(
            spec.place("model.compile", f"accelerate {spec.stack.pins['accelerate']}"),
            f"{spec.stack.name} cannot compile layer by layer{beside}",
            f"leave `compile` out, or write `target {able(lambda one: way in one.facts.compile_layers)}`",
            (spec.label("strategy", "the strategy"), spec.label("target", "the target")),
        )


def _compiles(spec: Spec) -> str | None:
    """The name in `extra trl` that turns compilation on, or None where none does."""
    if spec.extra_value("trl", "torch_compile") is True:
        return "torch_compile"
    return next(
        (one for one in ("torch_compile_mode", "torch_compile_backend") if spec.extra_value("trl", one) is not None),
        None,
    )


def _place(spec: Spec, text: str) -> tuple[str, Label] | None:
    """The name of what turns compilation on, and its place; None where nothing does."""
    if spec.flag("model.compile"):
        return "compile", spec.place("model.compile", text)
    name = _compiles(spec)
    return None if name is None else (name, spec.extra_place("trl", name, text))


def _backend(spec: Spec) -> str:
    written = spec.extra_value("trl", "torch_compile_backend")
    return written.lower() if isinstance(written, str) else "inductor"


@rule("XP353", "compile-before-ampere", "warning")
def compile_before_ampere(spec: Spec) -> Iterator[Finding]:
    """Compilation pays on Ampere and later; before Volta inductor's Triton has no kernels at all.

    Today: a line in the log, or GPUTooOldForTriton at the first step (capability below 7.0). Source: transformers 5.23
    and 4.52.3 `training_args.py`; torch 2.13 `_dynamo/device_interface.py`.
    """
    gpu = spec.hardware.gpu
    if gpu is None or gpu.capability >= (8, 0):
        return
    found = _place(spec, f"{gpu.name} has compute capability {gpu.compute_capability}")
    if found is None:
        return
    name, place = found
    too_old = gpu.capability < (7, 0) and _backend(spec) == "inductor"
    yield Finding(
        place,
        f"inductor has no kernels for {gpu.name}" if too_old else f"compilation gains little on {gpu.name}",
        f"leave `{name}` out",
        (spec.label("hardware", "the GPU"),),
        severity="error" if too_old else "warning",
    )


@rule("XP354", "compile-switched-on")
def compile_switched_on(spec: Spec) -> Iterator[Finding]:
    """A mode or a backend of the compiler switches compilation on, whatever `torch_compile` says.

    Source: transformers 5.23 and 4.52.3 `training_args.py` `__post_init__`; executed.
    """
    name = _compiles(spec)
    if name is not None and spec.extra_value("trl", "torch_compile") is False:
        yield Finding(
            spec.extra_place("trl", "torch_compile", "is turned to true"),
            f"`torch_compile = false` beside `{name}` compiles",
            f"leave `{name}` out",
            (spec.extra_place("trl", name, "switches it on"),),
        )


@rule("XP355", "graphs-of-changing-lengths", "warning")
def graphs_of_changing_lengths(spec: Spec) -> Iterator[Finding]:
    """CUDA graphs are recorded for one shape, and rows of other lengths record another each time.

    Only packing that cuts a stream (`wrapped`) gives rows of one length. Source: torch 2.13 `_inductor` (modes
    reduce-overhead and max-autotune turn graphs on); trl 1.16 and 0.18 collators pad to the longest row or flatten.
    """
    mode, backend = spec.extra_value("trl", "torch_compile_mode"), _backend(spec)
    name = "torch_compile_mode" if mode in GRAPHS and backend == "inductor" else "torch_compile_backend"
    graphs = backend == "cudagraphs" or name == "torch_compile_mode"
    cut = spec.flag("batch.packing") and spec.get("batch.packing.strategy") == "wrapped"
    if graphs and not spec.on_cpu and not cut:
        packed = spec.label("batch.packing", "rows are laid end to end") or spec.label("batch.padding_free")
        yield Finding(
            spec.extra_place("trl", name, "records CUDA graphs"),
            "CUDA graphs over batches of changing length",
            'write `torch_compile_mode = "max-autotune-no-cudagraphs"`' if mode in GRAPHS else f"leave `{name}` out",
            (packed,),
            'torch_compile_mode = "max-autotune-no-cudagraphs"' if name == "torch_compile_mode" else None,
        )


@rule("XP357", "unknown-compiler")
def unknown_compiler(spec: Spec) -> Iterator[Finding]:
    """A backend that accelerate does not know is a ValueError once the model is loaded, a mode of no such name a
    RuntimeError at the first step.

    Source: accelerate 1.15 and 1.4 `utils/dataclasses.py` `DynamoBackend`; torch 2.13 `_inductor`; executed.
    """
    mode, known = spec.extra_value("trl", "torch_compile_mode"), spec.stack.facts.compile_backends
    for name, value, legal in (("torch_compile_mode", mode, MODES), ("torch_compile_backend", _backend(spec), known)):
        if isinstance(value, str) and value not in legal and spec.extra_value("trl", name) is not None:
            usual = "default" if name == "torch_compile_mode" else "inductor"
            yield Finding(
                spec.extra_place("trl", name, "known are " + ", ".join(map(str, legal))),
                f"`{value[:60]}` is no {name.rpartition('_')[2]} of the compiler",
                write(f'{name} = "{usual}"'),
            )
