"""Compute numbers about a run: its steps, prompts, parameters, memory, hours, disk space and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt

from xpc.compiler.lower.disk import disk
from xpc.compiler.plan import GIB, size
from xpc.compiler.plan.evaluations import evaluated_rows
from xpc.compiler.plan.experiment import Plan, plan
from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.load import UnknownMemory
from xpc.compiler.plan.price import price_of
from xpc.compiler.review.differences.change import Change, Scalar
from xpc.compiler.review.run_length import RunLength, run_length
from xpc.compiler.spec import Spec
from xpc.grammar.record import field, record

UNKNOWN = "unknown"
IS = {"fits": "fits", "tight": "tight", "no": "does not fit", UNKNOWN: "not known"}
"""The verdicts of a plan in words, for messages such as `memory 31.0 GiB (fits)`."""
WAS = {**IS, "no": "too large"}


@record
class Quantity:
    """One number about a run, such as its hours: as text for people, and as a value for programs. `why` is the
    calculation that gave the number.
    """

    text: str
    value: Scalar
    why: str = ""


@record
class Forecast:
    """The numbers about one run: its plan, its length, and its quantities by name, such as `hours`."""

    plan: Plan
    length: RunLength
    quantities: Mapping[str, Quantity] = field(factory=dict)

    def number(self, name: str) -> float | None:
        """The value of a quantity if it is a known number, otherwise None."""
        found = self.quantities.get(name)
        value = None if found is None else found.value
        return float(value) if isinstance(value, int | float) else None


def forecast(spec: Spec, prices: Mapping[str, float] | None = None) -> Forecast:
    """Compute the quantities of one run: steps, memory, hours and disk space. `prices` maps GPUs to the price of a
    GPU-hour; with it, the cost is computed, too.
    """
    planned = plan(spec)
    length = run_length(spec, planned.steps)
    found = dict(_quantities(spec, planned, length))
    cost = _cost(spec, planned, prices or {})
    if cost is not None:
        found["cost"] = Quantity(f"{cost:,.2f}", round(cost, 2), "GPU-hours x price")
    return Forecast(planned, length, found)


def follows(before: Forecast, after: Forecast) -> list[Change]:
    """The quantities, such as `steps` or `hours`, whose values differ between two runs."""
    names = dict.fromkeys((*before.quantities, *after.quantities))
    out = [
        Change(name, *_texts(name, was, now), now.why, (was.value, now.value))
        for name in names
        for was, now in [tuple(one.quantities.get(name, UNPLANNED.get(name, NOTHING)) for one in (before, after))]
        if (was.text, was.value) != (now.text, now.value)
    ]
    memory = _memory(before.plan, after.plan)
    if memory is not None:
        out.insert(next((at for at, one in enumerate(out) if one.name in TIMES), len(out)), memory)
    return out


def _texts(name: str, was: Quantity, now: Quantity) -> tuple[str, str]:
    """The texts of two different quantities, with all digits if the rounded texts are equal."""
    if was.text != now.text:
        return was.text, now.text
    unit = " bytes" if name in SIZES else ""
    old, new = (f"{one.value:,}{unit}" if isinstance(one.value, int | float) else one.text for one in (was, now))
    return old, new


NOTHING = Quantity("none", None)
SIZES = ("one checkpoint", "disk, at most")
TIMES = ("hours", "GPU-hours", "cost")
UNPLANNED = dict.fromkeys((*TIMES, "trained parameters", "checkpoints written", *SIZES), Quantity(UNKNOWN, None))
"""The value "unknown" for each quantity that the plan of a run may lack, such as the cost on a GPU without a price."""


def verdict_change(before: Plan, after: Plan) -> str:
    """Compare the plan's verdicts on two runs. If they differ, return the end of a comparison's first line: `memory
    24.1 -> 31.0 GiB: tight, was fits`.
    """
    one = _memory(before, after)
    return f"memory {one.before} -> {one.after}: {one.why}" if one is not None and ", was " in one.why else ""


def _memory(before: Plan, after: Plan) -> Change | None:
    was = WAS[before.verdict] if before.verdict != after.verdict else ""
    verdict = f"{IS[after.verdict]}, was {was}" if was else IS[after.verdict]
    sizes = [UNKNOWN if one.peak is None else f"{one.peak.value / GIB:.1f}" for one in (before, after)]
    # both runs need the same memory, so the verdicts differ because the GPUs differ
    if was and sizes[0] == sizes[1]:
        sizes[0] += f" of {before.capacity / GIB:.1f}"
        sizes[1] += f" of {after.capacity / GIB:.1f}"
    if sizes[0] == sizes[1] and not was:
        return None
    unit = " GiB" if after.peak is not None else ""
    return Change("memory", sizes[0], sizes[1] + unit, verdict, (_gib(before), _gib(after)))


def _gib(planned: Plan) -> float | None:
    return None if planned.peak is None else round(planned.peak.value / GIB, 1)


def _quantities(spec: Spec, planned: Plan, length: RunLength) -> Iterator[tuple[str, Quantity]]:
    yield "steps", _counted(length.steps, length.steps_why())
    if spec.online:
        yield from _completions(spec, length)
    yield "tokens, at most", _counted(length.tokens, length.tokens_why())
    if length.warm is not None:
        count_, share = length.warm
        percent = f"{100 * share:.2g}" if share < 1 else f"{100 * share:,.0f}"
        text = f"{count_:,} step{'' if count_ == 1 else 's'}, {percent}% of the run"
        yield "warm-up", Quantity(text, text)
    yield from _parameters(spec)
    yield from _evaluations(spec, planned)
    if planned.saves is not None:
        yield "checkpoints written", _counted(planned.saves)
    written = disk(spec)
    if written is not None:
        yield "one checkpoint", _size(written["checkpoint"])
        total = written["checkpoint"] * written["checkpoints"] + written["model"]
        yield "disk, at most", _size(total, f"{written['checkpoints']} checkpoints and the model")
    rows = "if every row is as long as `seq`" if planned.full_rows else ""
    for name, span in (("hours", planned.hours), ("GPU-hours", planned.gpu_hours)):
        if span is not None:
            yield name, Quantity(_decimals(span.value), round(span.value, 3), rows)


def _completions(spec: Spec, length: RunLength) -> Iterator[tuple[str, Quantity]]:
    """For an online method, yield the number of prompts per step, and the number of weight updates that follow each
    round of generation.
    """
    gbs = spec.integer("batch.gbs")
    group = int(spec.get("method.generations") or 1) if spec.method.grouped else 1
    prompts = gbs / group
    number = int(prompts) if prompts == int(prompts) else round(prompts, 2)
    yield "prompts a step", Quantity(f"{number:,}", number, f"{gbs} completions / {group} of each prompt")
    accum, again = spec.integer("batch.accum"), int(spec.get("method.iterations") or 1)
    together = int(spec.get("method.steps_per_generation") or accum)
    if spec.method.grouped:
        updates, why = max(1, together * again // accum), f"{together} batches x {again} times / {accum} in a step"
        yield "updates with one generation", _counted(updates, why)
    if length.steps is not None:
        yield "completions generated", _counted(length.steps * gbs // again, f"{length.steps:,} steps x {gbs}")


def _parameters(spec: Spec) -> Iterator[tuple[str, Quantity]]:
    rank, alpha = spec.get("lora.rank"), spec.get("lora.alpha")
    if spec.lora and rank and alpha is not None:
        scale = float(alpha) / (sqrt(rank) if spec.flag("lora.rslora") else rank)
        root = "square root of " if spec.flag("lora.rslora") else ""
        yield "alpha over rank", Quantity(f"{scale:.4g}", float(f"{scale:.6g}"), f"{alpha:g} / {root}{rank}")
    facts = spec.model.facts
    try:
        load = load_of(spec)
    except UnknownMemory:
        return
    assert facts is not None  # load_of raises UnknownMemory for a model whose sizes (`facts`) are unknown
    trained = round(load.trained if load.adapters is None else load.adapters.params)
    if trained and facts.params:
        why = f"{100 * trained / facts.params:.3g}% of the model"
        yield "trained parameters", Quantity(_count(trained), trained, why)


def _evaluations(spec: Spec, planned: Plan) -> Iterator[tuple[str, Quantity]]:
    if planned.evaluations == 0:
        return
    yield "evaluations", _counted(planned.evaluations)
    rows = evaluated_rows(spec)
    if rows is not None:
        yield "rows of an evaluation", _counted(rows)


def _cost(spec: Spec, planned: Plan, prices: Mapping[str, float]) -> float | None:
    gpu = spec.hardware.gpu
    price = None if gpu is None else price_of(prices, gpu.name)
    return None if price is None or planned.gpu_hours is None else planned.gpu_hours.value * price


def _counted(value: int | None, why: str = "") -> Quantity:
    return Quantity(UNKNOWN, None) if value is None else Quantity(f"{value:,}", value, why)


def _count(value: int) -> str:
    """A number of parameters as text: `8.8M`."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return str(value)


def _size(value: int, why: str = "") -> Quantity:
    return Quantity(size(value), value, why)


def _decimals(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"
