"""A spec with other values of some settings, and the micro-batch that a run fits with."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language.setting import Path
from xpc.compiler.plan import BUDGET, FITS, GIB, Micro, verdict
from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.memory import memory
from xpc.compiler.spec import DERIVED, SPEC, Origin, Spec, Value
from xpc.grammar.record import evolve

Settings = Mapping[Path, object]


def changed(spec: Spec, settings: Settings) -> Spec:
    """The spec with other values, and what follows from them: the accumulation, the micro-batch of evaluation."""
    values = dict(spec.values.items())
    for path, value in settings.items():
        before = values.get(path)
        values[path] = Value(value, Origin(SPEC, None if before is None else before.origin.label))
    hardware = evolve(spec.hardware, nodes=settings["nodes"]) if "nodes" in settings else spec.hardware
    out = evolve(spec, values=values, hardware=hardware)
    micro = out.integer("batch.micro")
    accum = max(1, out.integer("batch.gbs") // (micro * out.replicas))
    follows: Settings = {"batch.accum": accum, "eval.micro": micro, "method.steps_per_generation": accum}
    for path, value in follows.items():
        if path in values and path not in settings and (path == "batch.accum" or not spec.written(path)):
            origin = values[path].origin
            if path == "batch.accum" and origin.kind == DERIVED:
                origin = Origin(DERIVED, None, f"{out.integer('batch.gbs')} / ({micro} x {out.replicas})")
            values[path] = Value(value, origin)
    return out


def fitting_micro(spec: Spec) -> Micro | None:
    """The largest micro-batch that the run is planned to fit with, where that is less than the one it has; None where
    it fits, or its memory is not known, or is counted as the most that it can be."""
    gpu, share, now = spec.hardware.gpu, spec.integer("batch.gbs") // spec.replicas, spec.integer("batch.micro")
    if gpu is None or now == 1 or spec.flag("freeze") or spec.flag("memory.offload_activations"):
        return None
    room = gpu.memory_gib * GIB
    peak = _peak(spec)
    if peak is None or verdict(peak, room) == FITS:
        return None
    from xpc.compiler.resolve.divisors import divisors

    for micro in reversed(divisors(now - 1, share)):
        peak = _peak(changed(spec, {"batch.micro": micro}))
        if peak is not None and verdict(peak, room) == FITS:
            held = f"{peak / GIB:.1f} GiB stay within {BUDGET:.0%} of {gpu.memory_gib:g} GiB"
            return Micro(micro, f"the largest divisor of {share} whose planned {held}")
    return Micro(1, f"the smallest: one sequence is planned to pass {BUDGET:.0%} of {gpu.memory_gib:g} GiB")


def _peak(spec: Spec) -> float | None:
    load = load_of(spec)
    held = load if isinstance(load, str) else memory(load)
    return None if isinstance(held, str) else held.peak
