"""Make a copy of a spec in which some settings have other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from xpc.compiler.language.items import DEFAULT, DERIVED, SPEC
from xpc.compiler.language.setting import Path
from xpc.compiler.plan.from_spec import WEIGHTLESS
from xpc.compiler.spec import Spec
from xpc.compiler.spec.recomputation import REENTRANT, why_reentrant
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.record import evolve

Settings = Mapping[Path, object]
Checker = Callable[[Spec], "set[str]"]
"""A function that returns the codes of the errors in a spec, except those about memory (`rules/core/legality.py`)."""


def changed(spec: Spec, settings: Settings) -> Spec:
    """A copy of the spec with other values for some settings. Values that are derived from these settings change with
    them: accumulation, the micro-batch of evaluations, and whether recomputation is reentrant.
    """
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
    if "strategy" in settings and not spec.written(REENTRANT):
        why = why_reentrant(out.stack, out.get)
        values[REENTRANT] = Value(bool(why), Origin(DERIVED, None, why) if why else Origin(DEFAULT))
    return out


def legality(spec: Spec, checker: Checker) -> Callable[[Settings], bool]:
    """Return a function that tests whether changed settings are legal: whether the changed spec has only errors that
    `spec` has, too.
    """
    before = checker(changed(spec, {}))
    return lambda settings: checker(changed(spec, settings)) <= before


def cache_key(spec: Spec) -> Iterator[object]:
    """The values of a spec that can affect its memory, its speed, or the legality of a change. Two specs with the same
    values can share results.
    """
    yield from (spec.model.name, spec.stack.name, spec.hardware.nodes)
    yield from (repr(value.value) for path, value in spec.values.items() if not path.startswith(WEIGHTLESS))
