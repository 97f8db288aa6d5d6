"""Table rows about time, memory and data. Each row has the plan's prediction and the run's measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.data.row_counts import trained
from xpc.compiler.lower.disk import disk
from xpc.compiler.plan.experiment import Span
from xpc.compiler.plan.flops import flops
from xpc.compiler.report.bundle_record import BundleRecord
from xpc.compiler.report.row import Row, share, size, time
from xpc.compiler.report.run_record import FINISHED, RunRecord, number, table
from xpc.grammar.record import evolve
from xpc.runtime.result import utilisation

PHASES = {
    "load": ("load",), "forward and backward": ("forward", "backward", "generate"), "step": ("step",),
    "evaluate": ("evaluate",), "save": ("save",),
}  # fmt: skip
"""Maps each phase that a run measures to the phases of the plan that correspond to it."""
KINDS = {"allocated": "allocated", "reserved": "reserved by the allocator", "resident": "resident set"}
LISTED = 8
"""If a run has more processes than this, only three of the processes' peaks are shown: the lowest, the median and the
highest.
"""
LOST = {
    "cut_rows": ("cut rows", "they have more tokens than `seq`"),
    "left_out": ("left out", "they have no learned token within `seq`"),
    "unlearned": ("without a learned token", "every token is masked"),
    "empty": ("empty rows", "they have no tokens"),
}
"""Maps the name of a count of rows to a pair: its title in the report, and the reason why these rows lost tokens or
were dropped.
"""
WAITED, PADDED, ASIDE = 0.05, 0.2, 0.1
"""Thresholds of three shares: time spent waiting for data, padding among the tokens, and time spent evaluating and
saving. If a share exceeds its threshold, the report states it as a reason for a slow run.
"""


# -- time -------------------------------------------------------------------------------------------------------------


def time_rows(run: RunRecord | None, one: BundleRecord | None) -> Iterator[Row]:
    """Rows for hours, tokens, tokens per second, utilisation, and what the time was spent on."""
    plan = None if one is None else one.plan
    yield _hours(run, one)
    tokens = None if run is None else run.tokens
    row = Row("Time", "tokens", actual="" if tokens is None else f"{tokens:,.0f}")
    if plan is not None and plan.tokens is not None:
        most = "at most " if plan.full_rows else ""
        shorter = plan.full_rows and tokens is not None and tokens < plan.tokens
        why = "rows are shorter than `seq`, the length that the plan assumes" if shorter else ""
        row = evolve(row, planned=f"{most}{plan.tokens:,}", why=why)
    yield row
    yield _speed(run, one)
    yield _utilisation(run, one)
    if run is None or not run.measured:
        return
    seconds, training = table(run.measured["seconds"]), number(run.measured["seconds"].get("train")) or 0.0
    for name, words in (("load", "before the first step"), ("train", "training"), ("evaluate", "evaluations")):
        if name in seconds:
            yield Row("Time", words, actual=time(seconds[name]))
    waits = run.measured["waits"]
    if training:
        stream = one is not None and one.stated["data"].get("streaming")
        long = waits / training >= WAITED and not stream
        why = "`extra trl { dataloader_num_workers = 4 }` loads rows in other processes" if long else ""
        yield Row("Time", "waits for data", actual=f"{time(waits)}, {share(waits / training)} of training", why=why)
    if run.measured["padding"] is not None:
        padding = run.measured["padding"]
        spec = None if one is None else one.spec
        packs = spec is not None and spec.text("method") == "sft" and not spec.reads_images
        why = "`batch { packing }` joins short rows" if padding >= PADDED and packs else ""
        yield Row("Time", "padding", actual=f"{share(padding)} of the tokens in batches", why=why)
    yield _saves(run, one, seconds)


def _hours(run: RunRecord | None, one: BundleRecord | None) -> Row:
    plan = None if one is None else one.plan
    row = Row("Time", "hours")
    seconds = None if run is None else run.seconds
    if plan is not None:
        row = evolve(row, planned="unknown" if plan.hours is None else _span(plan.hours))
    if seconds is None or run is None:
        return row
    row = evolve(row, actual=_hours_text(seconds / 3600))
    if plan is None or plan.hours is None:
        return evolve(row, why="" if plan is None else plan.unknown.get("hours", ""))
    if run.status != FINISHED:
        return evolve(row, why=f"up to step {run.step:,}")
    if plan.hours.low <= seconds / 3600 <= plan.hours.high:
        return evolve(row, why="within the plan's range")
    slow = seconds / 3600 > plan.hours.high
    return evolve(row, why=_slow(run) if slow else "faster than the runs that the plan was fitted to", differs=True)


def _slow(run: RunRecord) -> str:
    """The reasons why a run took longer than planned, from the run's measurements: `12 % of training waited for
    data`.
    """
    seconds = table(run.measured.get("seconds"))
    training = number(seconds.get("train")) or 0.0
    aside = sum(number(seconds.get(name)) or 0.0 for name in ("evaluate", "save"))
    reasons = []
    if training and run.measured["waits"] / training >= WAITED:
        reasons.append(f"{share(run.measured['waits'] / training)} of training waited for data")
    if training and aside / (training + aside) >= ASIDE:
        reasons.append(f"{share(aside / (training + aside))} went into evaluations and saves")
    if (run.measured.get("padding") or 0) >= PADDED:
        reasons.append(f"{share(run.measured['padding'])} of the tokens were padding")
    if run.restarts:
        again = len(run.restarts)
        reasons.append(f"steps were repeated after {again} restart{'s' * (again > 1)}")
    return "; ".join(reasons) or "slower than the runs that the plan was fitted to"


def _speed(run: RunRecord | None, one: BundleRecord | None) -> Row:
    plan = None if one is None else one.plan
    row = Row("Time", "tokens/s of a process")
    if plan is not None:
        fast, planned = plan.speed, "unknown"
        if fast is not None:
            most = f"{fast.tokens / fast.low:,.0f}" if fast.low > 0 else "more"
            planned = f"{fast.tokens:,.0f} ({fast.tokens / fast.high:,.0f} to {most})"
        row = evolve(row, planned=planned)
        row = evolve(row, why="" if fast is not None else plan.unknown.get("hours", ""))
    if run is None or run.tokens is None or not run.seconds or run.world is None:
        return row
    real = run.tokens / run.seconds / run.world
    row = evolve(row, actual=f"{real:,.0f}")
    if plan is None or plan.speed is None:
        return row
    low, high = plan.speed.tokens / plan.speed.high, plan.speed.tokens / max(1e-9, plan.speed.low)
    inside = low <= real <= high
    why = "within the plan's range" if inside else _slow(run) if real < low else "faster than the measured runs"
    return evolve(row, why=why, differs=not inside)


def _utilisation(run: RunRecord | None, one: BundleRecord | None) -> Row:
    """The row for the utilisation (MFU), which is the share of the hardware's peak FLOP/s that training achieved. If
    the peak is unknown, as for a CPU, the row has only the achieved FLOP/s.
    """
    row = Row("Time", "utilisation (MFU)")
    spec, plan = (None, None) if one is None else (one.spec, one.plan)
    cost = None if spec is None else flops(spec)
    if plan is not None and plan.speed is not None and cost is not None and cost["peak"]:
        each = plan.tokens_per_step / spec.integer("batch.gbs") if spec is not None else 0.0
        planned = plan.speed.tokens * (cost["token"] + cost["length"] * each) / cost["peak"]
        row = evolve(row, planned=share(planned))
    if run is None:
        return row
    found: Mapping[str, object] | None = table(run.summary.get("utilisation"))
    if not found and spec is not None and run.measured and run.world:
        training = number(table(run.measured["seconds"]).get("train")) or 0.0
        found = utilisation(cost, run.tokens, run.step * spec.integer("batch.gbs"), training, run.world)
    speed, part = number((found or {}).get("flops_per_second")), number((found or {}).get("share"))
    if part is not None:
        return evolve(row, actual=share(part))
    if speed is not None:
        why = "the peak of this device in TFLOP/s is not known"
        row = evolve(row, actual=f"{speed / 1e12:.3g} TFLOP/s of a process", why=why)
    elif run.tokens is None:
        row = evolve(row, actual="unknown", why="this trainer counts no tokens")
    return row


def _saves(run: RunRecord, one: BundleRecord | None, seconds: Mapping[str, float]) -> Row:
    count, written = run.measured["saves"], run.measured["saved_bytes"]
    saved = f"{count:,} checkpoint{'' if count == 1 else 's'}, {size(written)}"
    row = Row("Time", "saves", actual=f"{saved}, {time(number(seconds.get('save')) or 0.0)}")
    if one is None or one.plan is None or one.spec is None:
        return row
    each, planned = disk(one.spec), one.plan.saves
    if planned is None:
        return row
    row = evolve(
        row, planned=f"{planned:,} checkpoints" + (f" of {size(each['checkpoint'])}" if each and planned else "")
    )
    if count < planned and run.status == FINISHED:
        return evolve(row, why="checkpoints between the last measurement and a crash are not counted")
    if count > planned:
        return evolve(
            row, why="steps that are repeated after a crash are saved again, and a run that is stopped saves once more"
        )
    return row


# -- memory -----------------------------------------------------------------------------------------------------------


def memory_rows(run: RunRecord | None, one: BundleRecord | None) -> Iterator[Row]:
    """Rows for peaks of memory: the highest peak of all processes (in total, and in each phase), and the peak of each
    process. On a GPU, there are two peaks, of the memory that torch allocated and of the memory that it reserved. On a
    CPU, the peak is the resident set size.
    """
    plan = None if one is None else one.plan
    measured = {} if run is None else table(run.measured.get("memory"))
    kinds = {kind: max((sizes.get(kind, 0) for sizes in measured.values()), default=0) for kind in KINDS}
    kind = next((name for name in KINDS if kinds[name]), "")
    row = Row("Memory", "peak", actual=f"{size(kinds[kind])} ({KINDS[kind]})" if kind else "")
    if plan is not None:
        peak = plan.peak
        row = evolve(
            row, planned="unknown" if peak is None else f"{size(peak.value)} ({size(peak.low)} to {size(peak.high)})"
        )
        if peak is None:
            row = evolve(row, why=plan.unknown.get("memory", ""))
        elif kind == "allocated":
            inside = peak.low <= kinds[kind] <= peak.high
            row = evolve(
                row, why="within the plan's range" if inside else _memory_why(kinds[kind], peak), differs=not inside
            )
    yield row
    peaks = [] if run is None or not kind else run.measured["peaks"].get(kind, [])
    if len(peaks) > 1:
        yield Row("Memory", "each process", actual=of_each(peaks))
    memory_plan = plan.memory if plan is not None else None
    for name, theirs in PHASES.items():
        sums = (
            [sum(memory_plan.phases[each].values()) for each in theirs if each in memory_plan.phases]
            if memory_plan is not None
            else []
        )
        sizes = measured.get(name, {})
        if sums or sizes:
            yield Row(
                "Memory",
                name,
                planned=size(max(sums)) if sums else "",
                actual=size(sizes[kind]) if kind in sizes else "",
            )
    if kinds["reserved"]:
        yield Row("Memory", "reserved", actual=f"{size(kinds['reserved'])} ({KINDS['reserved']})")


def of_each(peaks: Sequence[int]) -> str:
    """The peaks of all processes as text: "3.1 GiB, 2.9 GiB". If there are many processes, the text has only the
    lowest, the median and the highest peak.
    """
    if len(peaks) <= LISTED:
        return ", ".join(map(size, peaks))
    low, *_, high = ranked = sorted(peaks)
    middle = size(ranked[len(ranked) // 2])
    return f"{size(low)} to {size(high)} (process {peaks.index(high)}), median {middle}, of {len(peaks):,} processes"


def _memory_why(real: float, peak: Span) -> str:
    if real > peak.high:
        return "more than in nine of ten measured runs with such a plan (docs/plan-accuracy.md)"
    return "less than planned: rows may be shorter than `seq`, the length that the plan assumes"


# -- data -------------------------------------------------------------------------------------------------------------


def data_rows(run: RunRecord | None, one: BundleRecord | None) -> Iterator[Row]:
    """Table rows about the data: how many rows it has, and how many of them lost tokens or have nothing to learn."""
    counts = {} if run is None else run.data
    rows = number(counts.get("rows"))
    row = Row("Data", "rows", actual="" if rows is None else f"{rows:,.0f}")
    if one is not None and one.spec is not None:
        spec = one.spec
        there = trained(spec)
        row = evolve(
            row,
            requested=", ".join(source.name for source in spec.data),
            planned="unknown" if there is None else f"{there:,}",
        )
        if there is not None and rows is not None and rows != there:
            row = evolve(row, why="rows were filtered, joined or split before they were tokenized", differs=True)
    yield row
    total = number(counts.get("tokens")) or 0
    for name, (words, why) in LOST.items():
        count = number(counts.get(name))
        if count is not None:
            lost = number(counts.get("cut_tokens")) or 0
            more = f", {lost:,.0f} of {total:,.0f} tokens" if name == "cut_rows" and count else ""
            yield Row("Data", words, actual=f"{count:,.0f}{more}", why=why if count else "", differs=bool(count))


def _span(found: Span) -> str:
    return f"{_hours_text(found.value)}, {found.low:.3g} to {found.high:.3g}"


def _hours_text(hours: float) -> str:
    """A number of hours as text. If it is below one, the same time in hours, minutes and seconds follows: `0.0261
    (0:01:34)`.
    """
    return f"{hours:.3g} ({time(hours * 3600)})" if hours < 1 else f"{hours:,.1f}"
