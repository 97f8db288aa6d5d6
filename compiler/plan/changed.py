"""Make a copy of a spec in which some settings have other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from xpc.compiler.language.items import DEFAULT, DERIVED, SPEC
from xpc.compiler.language.setting import Path
from xpc.compiler.plan.from_spec import WEIGHTLESS
from xpc.compiler.spec import Spec
from xpc.compiler.spec.recomputation import REENTRANT, why_reentrant
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")

Settings = Mapping[Path, object]


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


def legality(spec: Spec) -> Callable[[Settings], bool]:
    """Return a function that tests whether changed settings are legal: whether the changed spec has no error that
    `spec` does not have.
    """

    @cache
    def before() -> set[str]:
        return spec.error_codes(changed(spec, {}))

    def legal(settings: Settings) -> bool:
        found = spec.error_codes(changed(spec, settings))
        return not found or found <= before()

    return legal


_results: dict[Source, dict[tuple[object, ...], Any]] = {}
"""The results of `searched` for the last spec. Members of a sweep share a result if they differ only in settings such
as the learning rate, which do not affect memory, speed or legality.
"""


def searched(search: Callable[..., _T], spec: Spec, *arguments: object) -> _T:
    """The result of `search(spec, *arguments)`. Members of a sweep share one search if the values of all
    settings that can affect memory, speed or legality are the same.
    """
    if spec.source not in _results:
        _results.clear()
    results = _results.setdefault(spec.source, {})
    values = (
        (one.origin.kind, repr(one.value)) for path, one in spec.values.items() if not path.startswith(WEIGHTLESS)
    )
    key = (search, *map(repr, arguments), spec.model.name, spec.stack.name, spec.hardware.nodes, *values)
    if key not in results:
        results[key] = search(spec, *arguments)
    found: _T = results[key]
    return found
