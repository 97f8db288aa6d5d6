"""Show a plan as text with bars for a terminal, as JSON with a schema, or as Markdown for a comment."""

from __future__ import annotations

import json
from collections.abc import Sequence

from xpc.compiler.lower.disk import disk
from xpc.compiler.plan import BUDGET, FITS, GIB, NO, TIGHT, UNKNOWN, size
from xpc.compiler.plan.changes import Change, effect, faster, fitting
from xpc.compiler.plan.evaluations import evaluated_rows
from xpc.compiler.plan.experiment import Plan, Span

VERSION = 1
"""The version of the JSON format (docs/plan.schema.json). It must be increased if older readers cannot read the new
format.
"""
WIDTH = 36
SHOWN = 0.05
"""The text shows a component of memory only if it needs at least this many GiB. A smaller component would be printed as
0.0.
"""
LINE = 80
"""Width of a terminal in characters."""


def title(plan: Plan) -> str:
    """The run in one line: the model and its hardware."""
    hardware = plan.spec.hardware
    gpu = hardware.gpu.name if hardware.gpu is not None else "cpu"
    many = f"{hardware.nodes} nodes of " if hardware.nodes > 1 else ""
    return f"{plan.spec.model.name} on {many}{hardware.processes} x {gpu}, {plan.spec.text('strategy')}"


def text(plans: Sequence[Plan]) -> str:
    """The plans as text for a terminal."""
    parts = [_one(plan) for plan in plans]
    if len(plans) > 1:
        parts.append(totals(plans))
    return "\n".join(parts)


def _one(plan: Plan) -> str:
    lines = [*_headed(plan.spec.name, title(plan)), ""]
    memory, peak = plan.memory, plan.peak
    if memory is not None and peak is not None:
        scale = max(plan.capacity, peak.value)
        lines.append(
            f"memory of one GPU: {peak.value / GIB:.1f} GiB ({peak.low / GIB:.1f} to {peak.high / GIB:.1f}) of "
            f"{plan.capacity / GIB:.1f} at the {memory.phase} phase: {plan.verdict}"
        )
        cited = peak_source(plan)
        lines += [f"  {cited}; the prediction by component:"] if cited else []
        for name, held in sorted(memory.components.items(), key=lambda one: -one[1]):
            if held >= SHOWN * GIB or held == max(memory.components.values()):
                lines.append(_line(name, held, scale))
        lines.append("  by phase")
        for name, parts in memory.phases.items():
            lines.append(_line(name, sum(parts.values()), scale))
    else:
        of = " of one GPU" if plan.spec.hardware.gpu is not None else ""
        lines.append(f"memory{of}: unknown, {plan.unknown['memory']}")
    if host := [f"{size(held)} to {phase}" for phase, held in plan.host.items() if held >= SHOWN * GIB]:
        lines.append(f"RAM of {'each' if plan.spec.hardware.nodes > 1 else 'the'} machine: {', '.join(host)}")
    most = " at most (rows may be shorter than `seq`)" if plan.full_rows else ""
    steps = "unknown" if plan.steps is None else f"{'at most ' * bool(plan.filters)}{plan.steps:,}"
    lines += ["", f"steps: {steps}, {plan.tokens_per_step:,} tokens in one{most}"]
    if plan.filters:
        lines.append(f"  `{'` and `'.join(plan.filters)}` may drop rows: `--rows N` says how many remain")
    if plan.steps is None:
        lines.append(f"  {plan.unknown['steps']}")
    points = [f"warm-up {plan.warmup:,} steps"] if plan.warmup else []
    points += saved(plan)
    lines += [f"  {', '.join(points)}"] if points else []
    if plan.hours is None or plan.gpu_hours is None:
        lines.append(f"time: unknown, {plan.unknown.get('hours', '')}")
    else:
        lines.append(f"time: {duration(plan.hours)}, {duration(plan.gpu_hours, 'GPU-')}")
        if plan.evaluating >= 0.01:
            lines.append(f"  {100 * plan.evaluating:.0f}% of this time goes into evaluations: {evaluated(plan)}")
        if plan.full_rows:
            lines.append("  as if every row were as long as `seq`: `--tokens N` says how long rows are on average")
    if plan.cost is not None:
        lines.append(f"cost: {cost(plan.cost)}, at {plan.price:g} per GPU-hour")
    if plan.speed is not None:
        lines.append(f"  {plan.speed.tokens:,.0f} tokens/s a GPU, from {plan.speed.source}")
    found = alternatives(plan)
    if found:
        lines += ["", "what would make it go faster:" if plan.verdict == FITS else "what would make it fit:"]
        lines += [f"  {' with '.join(one.typed)}: {effect(one)}" for one in found]
    return "\n".join(lines) + "\n"


def _headed(name: str, about: str) -> list[str]:
    """The name and the title of a run, as lines for a terminal. The name of a sweep's member lists its settings; if the
    name is too long for a line, it is broken before a setting.
    """
    if len(name) + len(about) + 2 <= LINE:
        return [f"{name}: {about}"]
    lines = [""]
    for number, part in enumerate(name.split("_")):
        part = f"_{part}" if number else part
        if lines[-1] and len(lines[-1]) + len(part) > LINE - 1:
            lines.append("  ")
        lines[-1] += part
    return [*lines[:-1], f"{lines[-1]}:", f"  {about}"]


def peak_source(plan: Plan) -> str:
    """A phrase that says that the peak was measured, or that the prediction was corrected by measurements. "" for a
    plain prediction.
    """
    found = plan.measured
    if found is None or (found.peak is None and found.growth is None):
        return ""
    if found.peak is not None:
        return f"measured: {found.source}"
    return f"{found.growth:.2f} times the plan's: {found.source}"


def alternatives(plan: Plan) -> list[Change]:
    """The changes to suggest. For a run that does not fit, changes that make it fit; for a run that fits, changes that
    make it faster. Empty if the memory is unknown.
    """
    if plan.verdict == UNKNOWN:
        return []
    return faster(plan.spec) if plan.verdict == FITS else fitting(plan.spec)


def _line(name: str, size: float, scale: float) -> str:
    """A line with a name, a size and a bar. `scale` is the size in bytes of the longest bar."""
    return f"  {name:<22}{size / GIB:7.1f} GiB  {'#' * round(WIDTH * size / scale)}".rstrip()


def checkpoint_bytes(plan: Plan) -> float:
    """Bytes of one checkpoint; 0 if the model's size is unknown."""
    written = disk(plan.spec)
    return 0.0 if written is None else written["checkpoint"]


def saved(plan: Plan) -> list[str]:
    """A list with one phrase about the number and the size of the checkpoints. If the number or the size is unknown,
    the phrase leaves it out.
    """
    one = checkpoint_bytes(plan)
    if plan.saves is None or not one:
        return []
    if plan.saves <= 1:
        return [f"{plan.saves} checkpoint{'s' if plan.saves != 1 else ''} of {size(one)}"]
    return [f"{plan.saves:,} checkpoints of {size(one)}, {size(plan.saves * one)} to write"]


def evaluated(plan: Plan) -> str:
    """A phrase on the evaluations: `12 times 1,000 rows`."""
    return f"{plan.evaluations or 0:,} times {evaluated_rows(plan.spec) or 0:,} rows"


def duration(span: Span, of: str = "") -> str:
    """A duration with its range, such as `133.1 (102.4 to 190.1) hours`. The unit is minutes if the duration is below
    an hour, and seconds if it is below a minute. `of` is the text before the unit: "", or `GPU-` for GPU-hours.
    """
    for each, unit in ((1, "hours"), (60, "minutes")):
        if span.value * each >= 1:
            return f"{hours(span.times(each))} {of}{unit}"
    return f"{hours(span.times(3600))} {of}seconds"


def cost(span: Span) -> str:
    """A price with its range: `1,064.50 (818.90 to 1,520.70)`."""
    low = f"{span.low:,.2f} to " if span.low else "up to "
    return f"{span.value:,.2f} ({low}{span.high:,.2f})"


def hours(span: Span) -> str:
    """A number with its range, without the unit: `133.1 (102.4 to 190.1)`. Numbers below 1 get more digits."""
    digits = 1 if span.value >= 1 else 2 if span.value >= 0.1 else 3
    low = f"{span.low:.{digits}f} to " if span.low else "up to "
    return f"{span.value:.{digits}f} ({low}{span.high:.{digits}f})"


def totals(plans: Sequence[Plan]) -> str:
    """A line with the number of plans, their verdicts and their GPU-hours."""
    return f"{len(plans)} plans: {verdict_counts(plans)}; {total_hours(plans)} together\n"


def verdict_counts(plans: Sequence[Plan]) -> str:
    """The number of plans with each verdict: `3 fits, 1 tight`."""
    counts = {name: sum(plan.verdict == name for plan in plans) for name in (FITS, TIGHT, NO, UNKNOWN)}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def total_hours(plans: Sequence[Plan]) -> str:
    """The sum of the GPU-hours of all plans, as text. If the GPU-hours of any plan are unknown, the text is `GPU-hours
    unknown`.
    """
    known = [plan.gpu_hours.value for plan in plans if plan.gpu_hours is not None]
    return f"{sum(known):,.1f} GPU-hours" if len(known) == len(plans) else "GPU-hours unknown"


def table(plan: Plan) -> dict[str, object]:
    """A plan as JSON data, as docs/plan.schema.json describes it."""
    memory, peak = plan.memory, plan.peak
    hardware = plan.spec.hardware
    return {
        "version": VERSION,
        "spec": plan.spec.name,
        "gpu": hardware.gpu.name if hardware.gpu is not None else None,
        "gpus": hardware.world,
        "verdict": plan.verdict,
        "per_gpu": None
        if memory is None or peak is None
        else {
            "peak_allocated_bytes": _rounded(peak),
            "phase": memory.phase,
            "components": {name: round(size) for name, size in memory.components.items()},
            "phases": {name: round(sum(parts.values())) for name, parts in memory.phases.items()},
            "by_phase": {
                name: {part: round(size) for part, size in parts.items()} for name, parts in memory.phases.items()
            },
        },
        "capacity_bytes": round(plan.capacity) or None,
        "host_bytes": {name: round(bytes_) for name, bytes_ in plan.host.items()},
        "budget_bytes": round(BUDGET * plan.capacity) or None,
        "steps": plan.steps,
        "tokens_per_step": plan.tokens_per_step,
        "tokens_are_most": plan.full_rows,
        "warmup_steps": plan.warmup,
        "checkpoints": plan.saves,
        "evaluations": plan.evaluations,
        "evaluating_share": round(plan.evaluating, 4),
        "checkpoint_bytes": round(checkpoint_bytes(plan)) or None,
        "tokens_per_second_per_gpu": None if plan.speed is None else round(plan.speed.tokens, 1),
        "hours": None if plan.hours is None else _span(plan.hours),
        "gpu_hours": None if plan.gpu_hours is None else _span(plan.gpu_hours),
        "cost": None if plan.cost is None else {name: round(one, 2) for name, one in plan.cost.table().items()},
        "calibration": None if plan.measured is None else plan.measured.source,
        "unknown": dict(plan.unknown),
        "changes": [
            {
                "settings": one.typed,
                "also": one.also,
                "verdict": one.plan.verdict,
                "peak_allocated_bytes": None if one.plan.peak is None else _rounded(one.plan.peak),
                "pace": None if one.pace is None else round(one.pace, 3),
            }
            for one in alternatives(plan)
        ],
    }


def _rounded(span: Span) -> dict[str, int]:
    return {name: round(value) for name, value in span.table().items()}


def _span(span: Span) -> dict[str, float]:
    return {name: round(value, 3) for name, value in span.table().items()}


def as_json(plans: Sequence[Plan]) -> str:
    """The JSON text: an object for a single plan, a list for several."""
    tables = [table(plan) for plan in plans]
    return json.dumps(tables[0] if len(tables) == 1 else tables, indent=2) + "\n"


def markdown(plans: Sequence[Plan]) -> str:
    """A Markdown table with a row for each plan."""
    priced = any(plan.price is not None for plan in plans)
    names = ["spec", "runs on", "GiB of a GPU", "verdict", "steps", "hours", "GPU-hours", *(["cost"] if priced else [])]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for plan in plans:
        peak = "unknown" if plan.peak is None else f"{plan.peak.value / GIB:.1f} of {plan.capacity / GIB:.1f}"
        steps = "unknown" if plan.steps is None else f"{plan.steps:,}"
        long = "unknown" if plan.hours is None else duration(plan.hours).removesuffix(" hours")
        together = "unknown" if plan.gpu_hours is None else duration(plan.gpu_hours).removesuffix(" hours")
        cells = [_cell(plan.spec.name), _cell(title(plan)), peak, plan.verdict, steps, long, together]
        cells += ["unknown" if plan.cost is None else cost(plan.cost)] if priced else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
