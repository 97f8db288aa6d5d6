"""The alerts in the first line of the comment on a pull request: runs that no longer fit their GPUs, new warnings, and
new permissions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from xpc.compiler.review.consequences import Forecast
from xpc.compiler.review.differences.allowed import Allowed, first_line, newly_allowed
from xpc.compiler.review.operands import Run
from xpc.grammar.diagnostic import WARNING
from xpc.grammar.record import record


@record
class Alerts:
    """The alerts about one spec: how many of its runs no longer fit their GPUs, the codes of new warnings, and the
    permissions that the spec newly gives. A warning is new if only the new runs have it, or if a new run has it more
    often than any old run.
    """

    misfits: int = 0
    warnings: tuple[str, ...] = ()
    allowed: tuple[Allowed, ...] = ()


def alerts(
    was: Sequence[Run], now: Sequence[Run], before: Sequence[Forecast] | None, after: Sequence[Forecast] | None
) -> Alerts:
    """Compare the runs of a spec. `was` is empty for a new spec. `before` and `after` are the forecasts of the runs;
    None if they are unknown.
    """
    misfits = 0
    if before is not None and after is not None:
        misfits = max(0, _misfits(after) - _misfits(before))
    allowed = newly_allowed(*([run.spec for run in runs] for runs in (was, now)))
    return Alerts(misfits, tuple(sorted(_warnings(now) - _warnings(was))), allowed)


def alert_lines(found: Iterable[Alerts]) -> Iterator[str]:
    """The phrases about all specs together, some of them empty: `1 run newly exceeds the GPU memory`, `new warnings
    XP203, XP701`.
    """
    found = list(found)
    misfits = sum(one.misfits for one in found)
    if misfits:
        yield f"{misfits:,} run{'s' if misfits > 1 else ''} newly exceed{'' if misfits > 1 else 's'} the GPU memory"
    yield warning_line({code for one in found for code in one.warnings})
    yield first_line(allowed for one in found for allowed in one.allowed)


def warning_line(codes: Collection[str]) -> str:
    """The phrase about new warnings: `new warnings XP203, XP701`. "" if there are none."""
    return f"new warning{'s' if len(codes) > 1 else ''} {', '.join(sorted(codes))}" if codes else ""


def _misfits(found: Iterable[Forecast]) -> int:
    return sum(one.plan.verdict == "no" for one in found)


def _warnings(runs: Iterable[Run]) -> Counter[str]:
    """Map each code to its number of warnings. For a sweep, this is the largest number that any single member has."""
    found: Counter[str] = Counter()
    for run in runs:
        found |= Counter(one.code for one in run.spec.problems if one.severity == WARNING)
    return found
