"""What the first line of the comment on a pull request says besides its numbers: runs that do not fit their GPUs any
more, new warnings, and new permissions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from xpc.compiler.review.consequences import Forecast
from xpc.compiler.review.differences.allowed import newly_allowed
from xpc.compiler.review.operands import Run
from xpc.grammar.diagnostic import WARNING
from xpc.grammar.record import record


@record
class Alerts:
    """Of one spec: the number of its runs that fitted their GPUs before and do not any more, the codes of new warnings,
    and the permissions that the spec newly gives.
    """

    misfits: int = 0
    warnings: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()


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
    return Alerts(misfits, new_warnings(was, now), tuple(one.name for one in allowed if one.name))


def alert_lines(found: Iterable[Alerts]) -> Iterator[str]:
    """The phrases about all specs together: `1 run newly exceeds its GPUs`, `new warnings XP203, XP701`."""
    found = list(found)
    misfits = sum(one.misfits for one in found)
    if misfits:
        yield f"{misfits:,} run{'s' if misfits > 1 else ''} newly exceed{'' if misfits > 1 else 's'} the GPU memory"
    codes = sorted({code for one in found for code in one.warnings})
    if codes:
        yield f"new warning{'s' if len(codes) > 1 else ''} {', '.join(codes)}"
    allowed = dict.fromkeys(name for one in found for name in one.allowed)
    if allowed:
        yield f"newly allowed: {', '.join(allowed)}"


def new_warnings(was: Iterable[Run], now: Iterable[Run]) -> tuple[str, ...]:
    """The codes of warnings that only the new runs have, or that a new run has more often than any old run."""
    return tuple(sorted(_warnings(now) - _warnings(was)))


def _misfits(found: Iterable[Forecast]) -> int:
    return sum(one.plan.verdict == "no" for one in found)


def _warnings(runs: Iterable[Run]) -> Counter[str]:
    """Map each code to its number of warnings. For a sweep, this is the largest number that any single member has."""
    found: Counter[str] = Counter()
    for run in runs:
        found |= Counter(one.code for one in run.spec.problems if one.severity == WARNING)
    return found
