"""Write a plan as one HTML page. Bars show the memory of each phase, and a sortable table shows alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpc.compiler import registry
from xpc.compiler.plan import BUDGET, GIB, NO
from xpc.compiler.plan.changed import Settings, changed, legality
from xpc.compiler.plan.changes import STRATEGIES, effect
from xpc.compiler.plan.divisors import divisors
from xpc.compiler.plan.experiment import Assumptions, Plan, plan
from xpc.compiler.registry.types import Gpu
from xpc.compiler.render.page import page as frame
from xpc.compiler.render.page import text
from xpc.compiler.spec import Spec
from xpc.compiler.tuning.show import alternatives, duration, saved, title, total_hours, verdict_counts
from xpc.grammar.package_data import read_text
from xpc.grammar.record import evolve

SHOWN = 4
"""If there are at most this many plans, a page shows all of them in full. If there are more, it shows only one plan in
full: the plan that needs the largest share of its GPU's memory.
"""
MICROS = 5
"""The table of alternatives shows at most this many micro-batches: the planned one, and those nearest to it."""
Cell = str | tuple[float | None, str]
"""The content of a table cell: a text, or a pair: the number by which the table is sorted, and the text."""
COLORS = (
    "weights", "gradients", "optimizer", "master", "activations", "recomputation", "backward temporaries",
    "logits and loss", "gathered weights", "communication", "other models", "autocast copies", "step temporaries",
    "vllm", "key-value cache", "merged experts", "rotations", "norms of adapted weights",
    "gradients of tied tables",
)  # fmt: skip
"""The components of memory, in the order of the colours in the page's bars."""


def page(plans: Sequence[Plan], assumed: Assumptions) -> str:
    """The HTML page for one plan, or for several plans with their totals. `assumed` are the assumptions of the
    plans.
    """
    name = plans[0].spec.name if len(plans) == 1 else f"{len(plans)} plans"
    shown = plans if len(plans) <= SHOWN else [max(plans, key=_share)]
    parts = [*(_totals(plans) if len(plans) > 1 else ()), *(line for one in shown for line in _one(one, assumed))]
    style, script = read_text(__file__, "page.css"), read_text(__file__, "page.js")
    return frame(f"{name}: xpc plan", parts, style, script)


def _share(one: Plan) -> float:
    return one.peak.value / one.capacity if one.peak is not None and one.capacity else 0.0


# -- several plans ----------------------------------------------------------------------------------------------------


def _totals(plans: Sequence[Plan]) -> Iterator[str]:
    yield f"<h1>{len(plans)} plans</h1>"
    yield f'<p class="totals">{verdict_counts(plans)}; {total_hours(plans)} together</p>'
    names = ("run", "runs on", "GiB of a GPU", "verdict", "steps", "hours", "GPU-hours")
    rows = [[text(one.spec.name), text(title(one)), *_numbers(one)] for one in plans]
    yield _table(names, rows)


def _numbers(one: Plan) -> list[Cell]:
    """The table cells that both tables of the page have: memory, verdict, steps, hours and GPU-hours."""
    return [
        _number(None if one.peak is None else one.peak.value / GIB, 1),
        _verdict(one),
        _number(one.steps, 0),
        _number(None if one.hours is None else one.hours.value, 1),
        _number(None if one.gpu_hours is None else one.gpu_hours.value, 1),
    ]


def _number(value: float | None, digits: int) -> tuple[float | None, str]:
    return value, "unknown" if value is None else f"{value:,.{digits}f}"


def _verdict(one: Plan) -> str:
    return f'<span class="{one.verdict}">{one.verdict}</span>'


def _table(names: Sequence[str], rows: Sequence[Sequence[Cell]], now: int | None = None) -> str:
    """A table that can be sorted by any column. `now` is the index of the row with the unchanged plan, which is
    highlighted.
    """
    head = "".join(f'<th scope="col"><button type="button">{one}</button></th>' for one in names)
    body = []
    for index, row in enumerate(rows):
        cells = "".join(
            f"<td>{one}</td>"
            if isinstance(one, str)
            else f'<td data-value="{"" if one[0] is None else f"{one[0]:.6g}"}">{one[1]}</td>'
            for one in row
        )
        body.append(f"<tr{' class=now' if index == now else ''}>{cells}</tr>")
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
    )


# -- one plan ---------------------------------------------------------------------------------------------------------


def _one(one: Plan, assumed: Assumptions) -> Iterator[str]:
    yield f"<section><h1>{text(one.spec.name)}</h1>\n<p class=soft>{text(title(one))}</p>"
    yield from _memory(one)
    yield "<h2>Steps and time</h2>"
    yield from (f"<p>{line}</p>" for line in _course(one))
    found = alternatives(one)
    if found:
        yield f"<h2>What would make it {'go faster' if one.verdict == 'fits' else 'fit'}</h2><ul>"
        for each in found:
            yield f"<li>{' with '.join(f'<code>{text(typed)}</code>' for typed in each.typed)}: {effect(each)}</li>"
        yield "</ul>"
    yield from _alternatives(one, assumed)
    yield "</section>"


def _memory(one: Plan) -> Iterator[str]:
    memory_plan, peak = one.memory, one.peak
    if memory_plan is None or peak is None:
        yield f"<p class=verdict>Memory is unknown: {text(one.unknown['memory'])}</p>"
        return
    yield (
        f'<p class="verdict {one.verdict}">{one.verdict}: {peak.value / GIB:.1f} GiB of {one.capacity / GIB:.1f}</p>'
        f"<p class=soft>{peak.low / GIB:.1f} to {peak.high / GIB:.1f} GiB, at the {memory_plan.phase} phase</p>"
    )
    yield "<h2>Memory of one GPU by phase</h2>"
    scale = max(one.capacity, *(sum(parts.values()) for parts in memory_plan.phases.values())) * 1.02
    marks = "".join(
        f'<b class="{name}" style="left:{100 * size / scale:.2f}%" title="{words}"></b>'
        for name, size, words in (
            ("budget", BUDGET * one.capacity, f"{BUDGET:.0%} of the card"),
            ("card", one.capacity, "the card"),
        )
    )
    for name, parts in memory_plan.phases.items():
        sizes = {what: parts[what] for what in sorted(parts, key=_location)}
        bars = "".join(
            f'<i style="width:{100 * size / scale:.3f}%;background:{_color(what)}" '
            f'title="{what}: {size / GIB:.1f} GiB"></i>'
            for what, size in sizes.items()
        )
        total = sum(parts.values())
        yield (
            f'<div class="phase"><span>{name}</span>'
            f'<div class="bar" role="img" aria-label="{name}: {total / GIB:.1f} GiB">'
            f"{bars}{marks}</div><output>{total / GIB:.1f} GiB</output></div>"
        )
    yield '<ul class="legend">'
    for what in sorted({what for parts in memory_plan.phases.values() for what in parts}, key=_location):
        size = f" {memory_plan.components[what] / GIB:.1f}" if what in memory_plan.components else ""
        yield f'<li><i style="background:{_color(what)}"></i>{what}{size}</li>'
    yield "</ul><p class=soft>Numbers are GiB at the peak. The two lines mark 80 % and 100 % of the GPU's memory.</p>"


def _location(component: str) -> int:
    return COLORS.index(component) if component in COLORS else len(COLORS)


def _color(component: str) -> str:
    return f"hsl({_location(component) * 137 % 360} 55% var(--light))"


def _course(one: Plan) -> Iterator[str]:
    most = " at most" if one.full_rows else ""
    steps = text(one.unknown["steps"]) if one.steps is None else f"{one.steps:,} steps"
    yield f"{steps}, {one.tokens_per_step:,} tokens in one{most}"
    if one.hours is None or one.gpu_hours is None:
        yield f"hours unknown: {text(one.unknown.get('hours', ''))}"
    else:
        yield f"{duration(one.hours)}, {duration(one.gpu_hours, 'GPU-')}"
    yield from saved(one)


def _alternatives(one: Plan, assumed: Assumptions) -> Iterator[str]:
    """A table of legal alternatives that may fit: the same run with another micro-batch, recomputation, strategy or
    GPU.
    """
    if one.memory is None or one.spec.hardware.gpu is None:
        return
    rows: list[list[Cell]] = []
    here, now = _key(one.spec), None
    for spec in _variants(one.spec):
        found = plan(spec, assumed)
        if _key(spec) == here:
            now = len(rows)
        elif found.verdict == NO:
            continue
        gpu, tokens = spec.hardware.gpu, None if found.speed is None else found.speed.tokens
        assert gpu is not None  # if the plan has a GPU, so has each alternative
        recomputes = "yes" if spec.flag("memory.checkpointing") else "no"
        micro = spec.integer("batch.micro")
        output = _number(micro, 0)
        rows.append([gpu.name, spec.text("strategy"), output, recomputes, *_numbers(found), _number(tokens, 0)])
    yield "<h2>Alternatives</h2>"
    yield "<p class=soft>Runs that may fit, with the same global batch and number of GPUs. Click a heading to sort.</p>"
    names = ("GPU", "strategy", "micro", "checkpointing", "GiB of a GPU", "verdict", "steps", "hours", "GPU-hours")
    yield _table((*names, "tokens/s a GPU"), rows, now)


def _key(spec: Spec) -> tuple[object, ...]:
    gpu, kept = spec.hardware.gpu, spec.flag("memory.checkpointing")
    return gpu and gpu.name, spec.text("strategy"), spec.integer("batch.micro"), kept


def _variants(spec: Spec) -> Iterator[Spec]:
    strategy, share = spec.text("strategy"), spec.integer("batch.gbs") // spec.replicas
    micro = spec.integer("batch.micro")
    micros = sorted(
        {micro, *sorted(divisors(share, share) if share else (), key=lambda one: abs(one - micro))[:MICROS]}
    )
    strategies = dict.fromkeys((strategy, *(STRATEGIES if spec.hardware.world > 1 else ())))
    kept = spec.flag("memory.checkpointing")
    for gpu in _gpus(spec):
        there = evolve(spec, hardware=evolve(spec.hardware, gpu=gpu))
        legal = legality(there)
        for name in strategies:
            for recomputes in (kept, not kept):
                settings: Settings = {"strategy": name, "memory.checkpointing": recomputes}
                same = gpu is spec.hardware.gpu and name == strategy and recomputes == kept
                if same or legal(settings):
                    for one in micros:
                        yield changed(there, {**settings, "batch.micro": one})


def _gpus(spec: Spec) -> Iterator[Gpu]:
    """The GPU of the spec, and every other GPU of the registry that can compute in the spec's precision."""
    own = spec.hardware.gpu
    assert own is not None  # a run on the CPU has no plan of its memory
    yield own
    least = {"bf16": (8, 0), "fp8": (8, 9)}.get(spec.text("precision"), (0, 0))
    for name in registry.gpu_names():
        other = registry.find_gpu(name)
        if other is not None and other.name != own.name and other.capability >= least:
            yield other
