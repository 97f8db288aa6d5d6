"""The differences between the plans of two runs: memory per GPU with its verdict, hours, GPU-hours."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.plan import GIB
from xpc.compiler.plan.experiment import Plan, Span, plan
from xpc.compiler.review.run_length import Change
from xpc.compiler.spec import Spec

UNKNOWN = "unknown"


def planned(one: Spec, other: Spec) -> list[Change]:
    """The changed quantities of the plan."""
    before, after = plan(one), plan(other)
    return [each for each in _lines(before, after) if each.before != each.after]


def verdicts(found: list[Change]) -> str:
    """The end of the first line if the verdict changed: `memory 24.1 -> 31.0 GiB: tight, was fits`."""
    for one in found:
        if one.name == "memory" and ", was " in one.why:
            return f"memory {one.before} -> {one.after}: {one.why}"
    return ""


def _lines(before: Plan, after: Plan) -> Iterator[Change]:
    was = before.verdict if before.verdict != after.verdict else ""
    verdict = f"{after.verdict}, was {was}" if was else after.verdict
    sizes = [UNKNOWN if one.peak is None else f"{one.peak.value / GIB:.1f}" for one in (before, after)]
    if was and sizes[0] == sizes[1]:  # another GPU
        sizes[0] += f" of {before.capacity / GIB:.1f}"
        sizes[1] += f" of {after.capacity / GIB:.1f}"
    if sizes[0] != sizes[1] or was:
        yield Change("memory", sizes[0], sizes[1] + (" GiB" if after.peak is not None else ""), verdict)
    yield Change("hours", _hours(before.hours), _hours(after.hours), _rows(after))
    yield Change("GPU-hours", _hours(before.gpu_hours), _hours(after.gpu_hours), _rows(after))


def _hours(span: Span | None) -> str:
    return UNKNOWN if span is None else f"{span.value:.1f}"


def _rows(one: Plan) -> str:
    return "if every row is as long as `seq`" if one.hours is not None and one.full_rows else ""
