"""The probes of `xpc tune`: short runs of 20 steps. One probe runs the unchanged settings. Each of the other probes
runs one of the changes that are fastest according to the plan.

All probes have the same global batch, lengths, rows, loss and trained parameters, and so compute the same numbers. They
differ in the micro-batch with its accumulation, in recomputation, or in the stage of ZeRO. The learning rate is
constant, because the spec's warmup or decay may need more than 20 steps. Nothing is saved, evaluated, sent to a tracker
or pushed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from xpc.compiler.language.items import SPEC
from xpc.compiler.language.kinds import NEVER, Amount
from xpc.compiler.language.schema import TABLE, children
from xpc.compiler.language.setting import Path
from xpc.compiler.plan import FITS, UNKNOWN
from xpc.compiler.plan.changed import Settings, changed, legality
from xpc.compiler.plan.changes import Change, alike, micro_settings, micros, planned
from xpc.compiler.plan.experiment import plan
from xpc.compiler.rules import check
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.diagnostic import ERROR, Diagnostic
from xpc.grammar.record import evolve

STEPS = 20
"""Number of optimizer steps of a probe."""
MOST = 3
DROPPED = ("train.", "save.keep", "save.hub.", "eval.", "track.", "schedule.", "launch.", "data.holdout")
"""Prefixes of the paths of settings that a probe's spec does not contain."""
KEPT = tuple(row.path for row in children("launch") if not row.engines)


def candidates(spec: Spec) -> list[Change]:
    """The changes to try: of the changes that fit in memory, the three that are fastest according to the plan. If the
    plan predicts no speed, the three changes with the fewest changed settings. The unchanged run is always tried: if it
    is not one of the three, it is added at the beginning.
    """
    now = plan(spec)
    changes = [
        planned(spec, now, {**other, **micro_settings(spec, micro)}) for other in _others(spec) for micro in _near(spec)
    ]
    as_it_is = next(one for one in changes if not one.settings)
    if now.verdict == UNKNOWN or now.speed is None:
        ranked = sorted(changes, key=lambda one: len(one.settings))
    else:
        ranked = sorted((one for one in changes if one.plan.verdict == FITS), key=lambda one: -(one.pace or 0.0))
    best: list[Change] = []
    legal = legality(spec)
    for one in ranked:
        if len(best) < MOST and legal(one.settings):
            best.append(one)
    return best if as_it_is in best else [as_it_is, *best]


def _others(spec: Spec) -> Iterator[Settings]:
    """Yield the combinations of strategy and recomputation to try, as changed settings. The first one changes no
    setting.
    """
    strategy, recomputed = spec.text("strategy"), spec.flag("memory.checkpointing")
    for name in (strategy, *(one for one in alike(spec) if one != strategy)):
        kept: Settings = {} if name == strategy else {"strategy": name}
        yield kept
        yield {**kept, "memory.checkpointing": not recomputed}


def _near(spec: Spec) -> list[int]:
    """The micro-batches with which the global batch stays the same, ordered by their distance from the run's own
    micro-batch, the nearest first.
    """
    mine = spec.integer("batch.micro")
    return sorted(micros(spec), key=lambda one: (max(one, mine) / min(one, mine), -one))


def probe(spec: Spec, settings: Settings, save: str) -> CheckedSpec | list[Diagnostic]:
    """Return the spec of a probe: `spec` with changed settings and the output folder `save`. If a rule refuses this
    spec, return the errors instead.
    """
    found = changed(spec, settings)
    short: dict[Path, object] = {
        "train.steps": STEPS, "save": save, "save.every": NEVER, "save.resume": "auto", "save.hub": False,
        "save.merge": False, "eval.every": NEVER, "eval.micro": found.integer("batch.micro"),
        "track": ("none",), "track.every": Amount("count", 1), "schedule": "constant",
        "schedule.warmup": Amount("count", 0), "launch": "local",
    }  # fmt: skip
    values = {path: value for path, value in found.values.items() if path in KEPT or not path.startswith(DROPPED)}
    for path, value in short.items():
        if path in spec.values or path == "train.steps":
            values[path] = Value(value, Origin(SPEC))
    # the bundle's spec states every value, so all values count as written by the user
    for path, each in values.items():
        if each.origin.kind == SPEC and each.origin.label is None:
            values[path] = Value(each.value, Origin(SPEC, spec.model.label))
    ordered = {row.path: values[row.path] for row in TABLE if row.path in values}
    out = evolve(found, values=ordered, evaluated=())
    found_there = check(out)
    return [one for one in found_there if one.severity == ERROR] or CheckedSpec.of(out, found_there)


def where(folder: str, number: int) -> tuple[str, str]:
    """The paths of two folders of a probe: its bundle, and the output of its run."""
    return os.path.join(folder, f"{number}.bundle"), os.path.join(folder, f"{number}.out")
