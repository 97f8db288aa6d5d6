"""Add up the GPU-hours, the disk space and the cost of all runs in one argument of `xpc diff`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.plan import size
from xpc.compiler.review.consequences import Forecast, forecast
from xpc.compiler.review.differences.change import Change
from xpc.compiler.review.operands import DoesNotCompile, Run

INDEPENDENT = frozenset({"optimizer.lr", "seed", "data.seed", "save", "track.name"})
"""Settings that often differ between the members of a sweep, and affect neither hours nor disk space."""
ADDED = ("GPU-hours", "disk, at most", "cost")
MISFITS = "runs that do not fit their GPUs"
"""The name of a quantity: the number of runs that need more memory than their GPUs have, according to their plans."""


def forecasts(runs: Iterable[Run], prices: Mapping[str, float]) -> list[Forecast]:
    """The forecast (hours, disk, cost) of each run. Members that differ only in the settings INDEPENDENT share one
    forecast.

    Raises DoesNotCompile if a member on disk does not compile.
    """
    found: dict[tuple[str, ...], Forecast] = {}
    out = []
    for run in runs:
        key = tuple(_decisive(run))
        if key not in found:
            found[key] = forecast(run.spec, prices)
        out.append(found[key])
    return out


def _decisive(run: Run) -> Iterator[str]:
    """The values that hours and disk space depend on. For a member on disk, the values are all lines of its spec.xp,
    because checking every member's spec would be slow.
    """
    if run.tree is None:
        spec = run.spec
        yield from (spec.model.location, spec.stack.name, repr(spec.hardware))
        yield from (repr(value.value) for path, value in spec.values.items() if path not in INDEPENDENT)
        return
    head = ""
    for line in run.read(["spec.xp"])["spec.xp"].decode("utf-8", "surrogateescape").split("\n"):
        words = line.split(None, 1)
        name = words[0] if words else ""
        head = head if line[:1].isspace() else name
        path = f"{head}.{name}" if line[:1].isspace() else head
        if path not in INDEPENDENT:
            yield line


def added(found: Sequence[Forecast], name: str) -> float | None:
    """The sum of a quantity over all runs. None if the quantity is unknown for one of the runs."""
    values = [one.number(name) for one in found]
    return None if None in values else sum(one for one in values if one is not None)


def total_changes(before: Sequence[Run], after: Sequence[Run], prices: Mapping[str, float]) -> Iterator[Change]:
    """Yield each sum over all runs, such as GPU-hours, that is different for the two arguments of `xpc diff`. One of
    the sums is the number of runs that do not fit their GPUs. Empty if a member on disk does not compile.
    """
    try:
        sides = [forecasts(runs, prices) for runs in (before, after)]
    except (DoesNotCompile, UsageError):
        return
    yield from summed(*sides)


def summed(before: Sequence[Forecast], after: Sequence[Forecast]) -> Iterator[Change]:
    """Yield each sum over all runs, such as GPU-hours, that is different in the two lists of forecasts."""
    old_misfits, new_misfits = (sum(one.plan.verdict == "no" for one in side) for side in (before, after))
    if old_misfits != new_misfits:
        yield Change(MISFITS, f"{old_misfits:,}", f"{new_misfits:,}", "", (old_misfits, new_misfits))
    for name in ADDED:
        was, now = (added(side, name) for side in (before, after))
        if was is None or now is None:
            continue
        old, new = (size(one) if name.startswith("disk") else f"{one:,.2f}" for one in (was, now))
        if old != new:
            yield Change(name, old, new, f"{len(before):,} -> {len(after):,} runs", (round(was, 3), round(now, 3)))
