"""Rules about whether a run fits in the memory of its GPUs. The rule XP480 counts only the model states; XP960 and
XP961 use the plan's prediction of all memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.language.setting import Path
from xpc.compiler.plan import FITS, GIB, HIGH, NO, TIGHT, verdict
from xpc.compiler.rules.core.rule import Finding, rule, with_number
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import NOTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.plan.changes import Change
    from xpc.compiler.plan.memory import Memory

REFERENCES: tuple[Path, ...] = ("method.beta", "method.precompute", "method.reference_free")
"""Settings that decide whether a method keeps a frozen reference model."""


def least(spec: Spec) -> float:
    """A lower bound of the memory, in bytes per process: weights, gradients and optimizer states, and the weights of
    frozen models. 0 if it is unknown.
    """
    from xpc.compiler.plan.from_spec import load_of
    from xpc.compiler.plan.load import UnknownMemory
    from xpc.compiler.plan.states import states

    try:
        load = load_of(spec)
    except UnknownMemory:
        return 0.0
    held = states(load)
    return held.weights + held.gradients + held.optimizer + held.master + load.frozen


def oversized_states(spec: Spec) -> float:
    """The bytes of the model states in each process, if they need more memory than its GPU has; otherwise 0."""
    gpu, names = spec.hardware.gpu, " ".join(spec.extra.get("deepspeed", {}))
    if gpu is None or "master_weights" in names or "optimizer_states" in names:
        return 0.0
    held = least(spec)
    return held if held > gpu.memory_gib * GIB else 0.0


@rule("XP480", "states-beyond-the-card", reads=REFERENCES)
def states_beyond_the_card(spec: Spec) -> Iterator[Finding]:
    """Weights, gradients and optimizer states must fit in a GPU's memory. Their size is computed from the strategy, the
    offload, the adapters, the optimizer and the precision. Activations are not counted. `--allow-oom` turns the error
    into a note.

    Why it is bad: a run that does not fit even without any activations cannot start.

    Without this rule: OutOfMemoryError while the model is loaded, or at the first optimizer step.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, with smaller states for optimizers that keep less than AdamW.
    """
    held, facts, gpu = oversized_states(spec), spec.model.facts, spec.hardware.gpu
    if not held or facts is None or gpu is None:
        return
    if spec.wrong and not spec.written("strategy"):
        return  # if the spec has other errors, the plan has not chosen a strategy, so nothing can be computed
    written: Path = "strategy" if spec.written("strategy") else "hardware"
    yield Finding(
        spec.location(written, f"{held / GIB:.1f} GiB of states on every process"),
        f"{facts.alias} under {spec.text('strategy')} needs more than the {gpu.memory_gib:g} GiB of {gpu.name}",
        _suggestions(_fitting_changes(spec))
        or (_other_remedies(spec) if _planned(spec) is not None else _first_that_fits(spec)),
        (spec.model.label, spec.label("hardware", "the GPU") if written == "strategy" else None),
        severity=NOTE if spec.allow_oom else None,
    )


@rule("XP960", "beyond-the-card", reads=REFERENCES)
def beyond_the_card(spec: Spec) -> Iterator[Finding]:
    """The memory that the plan predicts must fit in the GPU. The prediction is a range, and this rule compares its low
    end with the GPU's memory. The plan counts weights, gradients, optimizer states, activations, logits, and gathered
    or recomputed tensors, for rows as long as `seq`. `xpc plan` shows these components. `--allow-oom` turns the error
    into a note. For a model family without measured coefficients, nothing is predicted, and the rule does nothing.

    Why it is bad: a run that needs more memory than its GPU has cannot finish.

    Without this rule: OutOfMemoryError, at the latest in the step with the longest rows.

    Source: docs/plan-accuracy.md.
    """
    predicted = _predicted(spec)
    if predicted is None or predicted[1] != NO:
        return
    yield _finding(spec, predicted[0], f"at least {predicted[0].low / GIB:.1f} GiB", NOTE if spec.allow_oom else None)


@rule("XP961", "tight-memory", "warning", reads=REFERENCES)
def tight_memory(spec: Spec) -> Iterator[Finding]:
    """The predicted memory should be at most 80 % of the GPU's memory. For a model family without measured
    coefficients, nothing is predicted, and the rule does nothing.

    Why it is bad: if the lengths of batches vary, memory becomes fragmented, and the allocator reserves more than the
    tensors need. Of 40 public runs that ran out of memory, all were predicted to need more than 80 %.

    Without this rule: a run that barely fits may run out of memory after hours, when one batch gets the longest rows.

    Source: docs/plan-accuracy.md, `xpc plan`.
    """
    predicted = _predicted(spec)
    if predicted is None or predicted[1] in (FITS, NO):
        return
    peak = predicted[0].peak / GIB
    yield _finding(spec, predicted[0], f"about {peak:.1f} GiB ({predicted[0].low / GIB:.1f} to {peak * HIGH:.1f})")


def _predicted(spec: Spec) -> tuple[Memory, str] | None:
    """Return a pair: the memory that the run is predicted to need on one GPU, and the plan's verdict on it, such as
    TIGHT. None if the prediction is unknown, or if the rule XP480 already reports the run. The result for the last spec
    is cached, because two rules need it.
    """
    global _latest
    if _latest is None or _latest[0] is not spec:
        _latest = spec, _verdict(spec)
    return _latest[1]


_latest: tuple[Spec, tuple[Memory, str] | None] | None = None
"""A cache of one entry: the last spec, and the prediction of its memory."""


def _verdict(spec: Spec) -> tuple[Memory, str] | None:
    """The predicted memory of the run, and the plan's verdict on this memory, such as TIGHT. `_predicted` caches the
    result.
    """
    if spec.hardware.gpu is None or spec.wrong or oversized_states(spec):
        return None
    held = _planned(spec)
    return None if held is None else (held, verdict(held.peak, spec.hardware.gpu.memory_gib * GIB, held.low))


def _planned(spec: Spec) -> Memory | None:
    """The predicted memory of one GPU, or None if the plan cannot predict it."""
    from xpc.compiler.plan.from_spec import load_of
    from xpc.compiler.plan.load import UnknownMemory
    from xpc.compiler.plan.memory import memory

    try:
        return memory(load_of(spec))
    except UnknownMemory:
        return None


def _finding(spec: Spec, held: Memory, needs: str, severity: str | None = None) -> Finding:
    """The finding for a run that needs too much memory. Its help lists the changes that make the run fit."""
    gpu, changes = spec.hardware.gpu, _fitting_changes(spec)
    assert gpu is not None  # the memory of a CPU is not predicted
    from xpc.compiler.plan.memory import OF_BATCH

    batch = sum(held.components.get(name, 0.0) for name in OF_BATCH)
    first: Mapping[Path, object] = changes[0].settings if changes else {}
    written: Path = next((path for path in (*first, "strategy") if spec.written(path)), "hardware")
    parts = f"{batch / GIB:.1f} GiB grow with the micro-batch, {(held.peak - batch) / GIB:.1f} do not"
    location = spec.location(written, parts)
    micro = first.get("batch.micro")
    return Finding(
        location,
        f"{spec.model.name} needs {needs} of each GPU in the {held.phase} phase, and {gpu.name} has {gpu.memory_gib:g}",
        _suggestions(changes) or _other_remedies(spec),
        (spec.label("hardware", "the GPU") if written != "hardware" else None,),
        with_number(location.typed, micro)
        if isinstance(micro, int) and [*first] == ["batch.micro"] == [written]
        else None,
        severity,
    )


def _fitting_changes(spec: Spec) -> list[Change]:
    """Changes that make the run fit. For each change, the plan of the changed run was computed. Empty if no such change
    is known.
    """
    from xpc.compiler.plan.changes import fitting  # imported here, because only a run that does not fit needs them

    return [*_smaller_bases(spec), *fitting(spec, 2)][:2]


def _smaller_bases(spec: Spec) -> list[Change]:
    """The changes that make a run with adapters fit in memory. Two are tried: the frozen base in bf16, or in 4 bits."""
    if not spec.lora or spec.bits or spec.on_cpu or spec.text("precision") != "bf16":
        return []
    from xpc.compiler.plan.changed import legality
    from xpc.compiler.plan.changes import as_typed
    from xpc.compiler.plan.experiment import plan

    tried: list[Mapping[Path, object]] = [{"lora.bits": 4}]
    if spec.text("model.dtype") == "fp32":
        tried.insert(0, {"model.dtype": "bf16"})
    now, legal = plan(spec), legality(spec)
    made = (as_typed(spec, now, one) for one in tried if legal(one))
    return [one for one in made if one.plan.verdict == FITS]


def _suggestions(changes: Sequence[Change]) -> str:
    """The changes as a help, such as `write X with Y (61.2 GiB, 3% slower), or Z`."""
    from xpc.compiler.plan.changes import effect

    adapter = changes[0].plan.spec.adapter if changes else ""
    four = "qlora` instead of `lora" if adapter == "lora" else f"{adapter}(bits=4)"
    bases = {"dtype = bf16": "model(dtype=bf16)", "bits = 4": four}
    forms = [
        f"{' with '.join(f'`{bases.get(typed, typed)}`' for typed in one.typed)} ({effect(one)})" for one in changes
    ]
    none_fits = all(one.plan.verdict == TIGHT for one in changes)
    return ("no change fits into 80 % of the memory; " * none_fits + f"write {', or '.join(forms)}") if forms else ""


def _other_remedies(spec: Spec) -> str:
    """The help if no change of settings makes the run fit. It suggests more GPUs, shorter rows, or a smaller model."""
    return f"take more GPUs, GPUs with more memory, {'' if spec.lora else 'adapters, '}shorter rows or a smaller model"


def _first_that_fits(spec: Spec) -> str:
    """The help text: it proposes the first change of strategy or offload with which the model states fit in the GPU."""
    from xpc.compiler.plan.changed import changed, legality
    from xpc.compiler.plan.changes import forms, tiers

    gpu, legal = spec.hardware.gpu, legality(spec)
    assert gpu is not None  # `oversized_states` returns 0 for a run without a GPU
    for tier in tiers(spec):
        fits = "nodes" not in tier and 0 < least(changed(spec, tier)) <= gpu.memory_gib * GIB * 0.9
        if tier.get("strategy") and fits and legal(tier):
            return f"write `{next(forms(tier))}`"
    return _other_remedies(spec)
