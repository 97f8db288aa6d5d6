"""Rules about the setting `compile` and the arguments in `extra trl` that compile the model. The rules check what
torch.compile needs, and what each stack can compile (XP34x, XP35x).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import any_of, enabled, extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.grammar.diagnostic import Label

WHEN = any_of(enabled("model.compile"), extra("trl"))

MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of torch.compile (torch 2.13 `_inductor.list_mode_options`)."""
GRAPHS = ("reduce-overhead", "max-autotune")


@rule("XP344", "compiled-twice")
def compiled_twice(spec: Spec) -> Iterator[Finding]:
    """`compile`, which compiles layer by layer, cannot be combined with `torch_compile`, which compiles the complete
    model. `torch_compile_mode` and `torch_compile_backend` apply to both.

    Why it is bad: accelerate compiles either layer by layer or the complete model.

    Without this rule: nothing is reported; whether `compile` or `torch_compile` takes effect depends on environment
    variables that accelerate reads.

    Source: accelerate 1.15 `accelerator.py` `prepare_model`, `TorchDynamoPlugin`.
    """
    if spec.flag("model.compile") and spec.extra_value("trl", "torch_compile") is not None:
        yield Finding(
            spec.extra_location("trl", "torch_compile", "compiles the complete model"),
            "`compile` cannot be combined with `torch_compile`",
            "leave `torch_compile` out",
            (spec.label("model.compile", "compiles layer by layer"),),
        )


@rule("XP345", "layers-not-compiled")
def layers_not_compiled(spec: Spec) -> Iterator[Finding]:
    """`compile` needs a target whose accelerate can compile layer by layer. accelerate 1.4 cannot do so, and accelerate
    1.11 cannot do so under FSDP.

    Why it is bad: with accelerate 1.4, the run would compile the complete model. With accelerate 1.11, FSDP's hooks
    would not run in the compiled layers.

    Without this rule: accelerate 1.4 silently compiles the complete model. Under accelerate 1.11, FSDP2 does not gather
    the weights of compiled layers one by one.

    Source: accelerate 1.15 `utils/other.py` (`compile_regions_fsdp2` and its reason), 1.11 `accelerator.py`, 1.4
    `utils/dataclasses.py`; confirmed by running it for 1.4.
    """
    way = "fsdp" if spec.sharded_by_fsdp else "zero" if spec.zero_stage else "plain"
    reach = spec.stack.facts.compile_layers
    if spec.flag("model.compile") and way not in reach:
        under = "" if not reach else f" under {spec.text('strategy')}"
        yield Finding(
            spec.location("model.compile", f"accelerate {spec.stack.pins['accelerate']}"),
            f"{spec.stack.name} cannot compile layer by layer{under}",
            f"leave `compile` out, or write `target {able(lambda one: way in one.facts.compile_layers)}`",
            (spec.label("strategy", "the strategy"), spec.label("target", "the target")),
        )


def _compiles(spec: Spec) -> str | None:
    """The argument in `extra trl` that turns compilation on: `torch_compile`, or an argument that sets a mode or a
    backend of the compiler. None if there is no such argument.
    """
    if spec.extra_value("trl", "torch_compile") is True:
        return "torch_compile"
    return next(
        (one for one in ("torch_compile_mode", "torch_compile_backend") if spec.extra_value("trl", one) is not None),
        None,
    )


def _location(spec: Spec, text: str) -> tuple[str, Label] | None:
    """Return a pair: the name and the location of the setting that turns `torch.compile` on. None if no setting
    does.
    """
    if spec.flag("model.compile"):
        return "compile", spec.location("model.compile", text)
    name = _compiles(spec)
    return None if name is None else (name, spec.extra_location("trl", name, text))


def _backend(spec: Spec) -> str:
    """The backend of torch.compile, in lower case."""
    written = spec.extra_value("trl", "torch_compile_backend")
    return written.lower() if isinstance(written, str) else "inductor"


@rule("XP353", "compile-before-ampere", "warning")
def compile_before_ampere(spec: Spec) -> Iterator[Finding]:
    """Compilation should run on a GPU of the Ampere generation or later. On older GPUs, this rule warns. On GPUs older
    than Volta, it reports an error for the backend inductor.

    Why it is bad: compilation gains little before Ampere, and inductor's Triton has no kernels before Volta.

    Without this rule: transformers writes a line to the log; below capability 7.0, the first step raises
    GPUTooOldForTriton.

    Source: transformers 5.23 and 4.52.3 `training_args.py`; torch 2.13 `_dynamo/device_interface.py`.
    """
    gpu = spec.hardware.gpu
    if gpu is None or gpu.capability >= (8, 0):
        return
    found = _location(spec, f"{gpu.name} has compute capability {gpu.compute_capability}")
    if found is None:
        return
    name, location = found
    too_old = gpu.capability < (7, 0) and _backend(spec) == "inductor"
    yield Finding(
        location,
        f"inductor has no kernels for {gpu.name}" if too_old else f"compilation gains little on {gpu.name}",
        f"leave `{name}` out",
        (spec.label("hardware", "the GPU"),),
        severity="error" if too_old else "warning",
    )


@rule("XP354", "compile-switched-on")
def compile_switched_on(spec: Spec) -> Iterator[Finding]:
    """`torch_compile = false` contradicts `torch_compile_mode` and `torch_compile_backend`.

    Why it is bad: a mode or a backend of the compiler switches compilation on.

    Without this rule: the model is compiled although `torch_compile` is false.

    Source: transformers 5.23 and 4.52.3 `training_args.py` `__post_init__`; confirmed by running it.
    """
    name = _compiles(spec)
    if name is not None and spec.extra_value("trl", "torch_compile") is False:
        yield Finding(
            spec.extra_location("trl", "torch_compile", "becomes true"),
            f"`{name}` compiles the model in spite of `torch_compile = false`",
            f"leave `{name}` out",
            (spec.extra_location("trl", name, "switches it on"),),
        )


@rule("XP355", "graphs-of-changing-lengths", "warning")
def graphs_of_changing_lengths(spec: Spec) -> Iterator[Finding]:
    """A run that records CUDA graphs should have batches that all have the same shape. Only `packing(strategy=wrapped)`
    makes such batches. CUDA graphs are recorded by the compile modes `reduce-overhead` and `max-autotune` and by the
    backend `cudagraphs`.

    Why it is bad: a CUDA graph is recorded for one shape of the batch, so each new length records another graph.

    Without this rule: TRL pads each batch to its longest row, or joins its rows into one row. So the length changes
    from batch to batch, and each new length costs the time and the memory of a new graph.

    Source: torch 2.13 `_inductor` (the modes reduce-overhead and max-autotune turn graphs on); the collators of trl
    1.16 and 0.18.
    """
    mode, backend = spec.extra_value("trl", "torch_compile_mode"), _backend(spec)
    name = "torch_compile_mode" if mode in GRAPHS and backend == "inductor" else "torch_compile_backend"
    graphs = backend == "cudagraphs" or name == "torch_compile_mode"
    cut = spec.flag("batch.packing") and spec.get("batch.packing.strategy") == "wrapped"
    if graphs and not spec.on_cpu and not cut:
        packed = spec.label("batch.packing", "rows are joined end to end") or spec.label("batch.padding_free")
        yield Finding(
            spec.extra_location("trl", name, "records CUDA graphs"),
            "CUDA graphs are recorded again for every batch length",
            'write `torch_compile_mode = "max-autotune-no-cudagraphs"`' if mode in GRAPHS else f"leave `{name}` out",
            (packed,),
            'torch_compile_mode = "max-autotune-no-cudagraphs"' if name == "torch_compile_mode" else None,
        )


@rule("XP357", "unknown-compiler")
def unknown_compiler(spec: Spec) -> Iterator[Finding]:
    """`torch_compile_backend` and `torch_compile_mode` must be names that the libraries know.

    Why it is bad: a misspelling is found only after the model is loaded.

    Without this rule: an unknown backend raises ValueError after the model is loaded, an unknown mode RuntimeError at
    the first step.

    Source: accelerate 1.15 and 1.4 `utils/dataclasses.py` `DynamoBackend`; torch 2.13 `_inductor`; confirmed by running
    it.
    """
    mode, known = spec.extra_value("trl", "torch_compile_mode"), spec.stack.facts.compile_backends
    for name, value, legal in (("torch_compile_mode", mode, MODES), ("torch_compile_backend", _backend(spec), known)):
        if isinstance(value, str) and value not in legal and spec.extra_value("trl", name) is not None:
            usual = "default" if name == "torch_compile_mode" else "inductor"
            yield Finding(
                spec.extra_location("trl", name, "known are " + ", ".join(map(str, legal))),
                f"`{value[:60]}` is not a {name.rpartition('_')[2]} of the compiler",
                f"leave `{name}` out: nothing is then compiled"
                if value.lower() in ("no", "none", "off", "false")
                else write(f'{name} = "{usual}"'),
            )
