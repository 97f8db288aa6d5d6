"""Plan a checked spec: predict its memory with a verdict (fits or not), its steps and tokens, and its hours. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from xpc.compiler.data.row_counts import filters, sampled, sequences_of_steps, steps_of_rows, trained
from xpc.compiler.language.kinds import Amount
from xpc.compiler.plan import GIB, HIGH, UNKNOWN, verdict
from xpc.compiler.plan.calibration import Measured, Reading, measured
from xpc.compiler.plan.evaluations import evaluated_rows, evaluations, forward_share, times
from xpc.compiler.plan.from_spec import load_of, row_tokens, speed_of, unmeasured
from xpc.compiler.plan.host import host_memory
from xpc.compiler.plan.load import Load, UnknownMemory
from xpc.compiler.plan.memory import Memory, memory
from xpc.compiler.plan.price import price_of
from xpc.compiler.plan.time import Speed
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve, field, record


@record
class Span:
    """A predicted value with a range. In nine of ten measured runs, the measured value was within the range that had
    been predicted for the run.
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Span:
        """The value and its range, multiplied by `factor`."""
        return Span(self.value * factor, self.low * factor, self.high * factor)

    def table(self, factor: float = 1.0) -> dict[str, float]:
        """The value and its range for JSON, multiplied by `factor`."""
        return {"value": self.value * factor, "low": self.low * factor, "high": self.high * factor}


@record
class Assumptions:
    """What the command line states about a run: the rows of one epoch, the average number of tokens in a row,
    measurements of real runs, and the price of a GPU-hour for each kind of GPU (`price.py`). `packed` is the number of
    packed sequences for each row, if a preview has counted them; without it, sequences count as filled completely.
    """

    rows: int | None = None
    tokens: int | None = None
    readings: tuple[Reading, ...] = ()
    prices: Mapping[str, float] = field(factory=dict)
    packed: float | None = None


@record
class Plan:
    """The prediction for a run: its memory, steps and hours. An unknown value is None, and `unknown` maps the value's
    name to the reason.

    `sequences` is the number of sequences of all steps; the last step of an epoch may have fewer than `gbs`.
    `hours` is the time of training and of all evaluations. `evaluations` is the number of evaluations, and `evaluating`
    the share of the hours that they take. `host` has the bytes of one machine in RAM, by phase (host.py). If `filters`
    is not empty, these settings drop rows, and the numbers of steps and sequences are upper bounds.
    """

    spec: Spec
    capacity: float
    verdict: str
    memory: Memory | None
    steps: int | None
    sequences: int | None
    tokens_per_step: int
    full_rows: bool
    warmup: int | None
    saves: int | None
    hours: Span | None
    speed: Speed | None
    unknown: Mapping[str, str]
    measured: Measured | None = None
    price: float | None = None
    evaluations: int | None = 0
    evaluating: float = 0.0
    filters: Sequence[str] = ()
    host: Mapping[str, float] = field(factory=dict)

    @property
    def tokens(self) -> int | None:
        """The tokens of all steps; None if the number of steps is unknown."""
        gbs = self.spec.integer("batch.gbs")
        return None if self.sequences is None else self.sequences * self.tokens_per_step // gbs

    @property
    def peak(self) -> Span | None:
        """The peak bytes on one GPU: the measured peak if this run was measured, otherwise the predicted one."""
        found = self.measured
        if found is not None and found.peak is not None:
            return Span(found.peak, found.peak, found.peak)
        if self.memory is None:
            return None
        growth = found.growth or 1.0 if found is not None else 1.0
        value = self.memory.peak * growth
        return Span(value, self.memory.low * growth, value * HIGH)

    @property
    def gpu_hours(self) -> Span | None:
        """Hours of all GPUs together."""
        if self.hours is None:
            return None
        return self.hours.times(self.spec.hardware.world)

    @property
    def cost(self) -> Span | None:
        """The price of all GPU-hours; None if the hours or the price are unknown."""
        return None if self.gpu_hours is None or self.price is None else self.gpu_hours.times(self.price)


def plan(spec: Spec, assumed: Assumptions | None = None) -> Plan:
    """Plan a checked spec, perhaps with assumptions from the command line. The function never raises: values that it
    cannot predict are unknown.
    """
    given = assumed or Assumptions()
    unknown: dict[str, str] = {}
    load: Load | None = None
    estimate: Memory | None = None
    gpu = spec.hardware.gpu
    capacity = gpu.memory_gib * GIB if gpu is not None else 0.0
    try:
        load = load_of(spec)
        estimate = memory(load)
    except UnknownMemory as error:
        unknown["memory"] = str(error)
    rows, why = _rows(spec, given)
    steps = spec.get("train.steps")
    if steps is None and rows is not None:
        steps = steps_of_rows(spec, rows)
    if steps is None:
        unknown["steps"] = why
    gbs, sequences = spec.integer("batch.gbs"), None if steps is None else sequences_of_steps(spec, rows, steps)
    tokens, full = _tokens(spec, given)
    fast = None if load is None else speed_of(spec, load, tokens, given.tokens)
    real = measured(given.readings, spec) if given.readings else None
    if real is not None:
        fast = _measured_speed(spec, real, fast, tokens)
    if fast is None:
        cause = unmeasured(spec) or "no published runs on such a GPU"
        unknown["hours"] = unknown["memory"] if load is None and gpu is not None else cause
    elif steps is None:
        unknown["hours"] = why
    hours = None
    if real is not None and real.seconds is not None and steps is not None:
        hours = Span(*(steps * seconds / 3600 for seconds in real.seconds))
    elif fast is not None and sequences is not None:
        whole = sequences * tokens / gbs / spec.replicas / spec.context_parallel / fast.tokens / 3600
        # rows that are shorter than assumed would take less time, but the lengths of rows are unknown here
        hours = Span(whole, 0.0 if full else whole * fast.low, whole * fast.high)
    number, aside = evaluations(spec, steps), 0.0
    if hours is not None and steps and load is not None:
        held: float = (number or 0) * (evaluated_rows(spec) or 0)
        if spec.flag("batch.packing"):
            held *= (given.tokens or 0) / row_tokens(spec)
        aside = held * forward_share(load) / (sequences or gbs)
        hours = hours.times(1.0 + aside)
    out = Plan(
        spec, capacity, UNKNOWN, estimate, steps, sequences, tokens, full,
        _warmup(spec, steps), _saves(spec, steps), hours, fast, unknown, real,
        None if gpu is None else price_of(given.prices, gpu.name),
        number, aside / (1.0 + aside), filters(spec) if given.rows is None and spec.get("train.steps") is None else (),
        {} if load is None else host_memory(spec, load),
    )  # fmt: skip
    if out.peak is None or not capacity:
        return out
    return evolve(out, verdict=verdict(out.peak.value, capacity, out.peak.low))


def _measured_speed(spec: Spec, real: Measured, fast: Speed | None, tokens: int) -> Speed | None:
    """The speed according to measurements. If this run itself was measured, the speed is the run's tokens per step
    divided by the measured seconds. If only similar runs were measured, it is the plan's speed times the factor
    `real.pace`.
    """
    if real.seconds is not None:
        middle, low, high = real.seconds
        each = real.tokens or tokens / spec.hardware.world / middle
        return Speed(each, low / middle, high / middle, real.source)
    if fast is None or real.pace is None:
        return fast
    return Speed(fast.tokens * real.pace, fast.low, fast.high, f"{fast.source}, corrected by {real.source}")


def _tokens(spec: Spec, given: Assumptions) -> tuple[int, bool]:
    """Return a pair: the tokens of an optimizer step, and whether this number is only an upper bound. It is an upper
    bound if each row is counted as `seq` tokens.
    """
    sequences, length = spec.integer("batch.gbs") * spec.method.sequences, row_tokens(spec)
    packed = spec.flag("batch.packing")
    if given.tokens is not None and not packed:
        return sequences * min(length, given.tokens), False
    return sequences * length, not packed


def _rows(spec: Spec, given: Assumptions) -> tuple[int | None, str]:
    """Return the number of sequences in an epoch, and an empty text. If the number is unknown, return None and the
    reason.
    """
    rows, packed = given.rows if given.rows is not None else trained(spec), spec.flag("batch.packing")
    if rows is None:
        pieces = " after long texts are split" if spec.get("data.long") == "chunk" and not packed else ""
        length = ", and `--tokens N` their average length" if packed and given.tokens is None else ""
        return None, f"the number of rows{pieces} is not known: `--rows N` states it{length}"
    rows = sampled(spec, rows)
    if packed:
        if given.tokens is None:
            why = "the number of packed rows is not known: `--tokens N` states the average length of a row"
            return None, f"{why}, and `xpc preview --rows 1000` counts it"
        rows = max(1, ceil(round(rows * (given.packed or given.tokens / row_tokens(spec)), 6)))
    return rows, ""


def _warmup(spec: Spec, steps: int | None) -> int | None:
    """The steps of the warm-up; None if unknown."""
    warmup = spec.get("schedule.warmup")
    if not isinstance(warmup, Amount) or (steps is None and warmup.unit == "share"):
        return None
    return warmup.steps(steps or 0)


def _saves(spec: Spec, steps: int | None) -> int | None:
    """The number of checkpoints that the run writes. If a run saves at all, it also saves at its last step
    (DefaultFlowCallback).
    """
    return times(spec, "save.every", steps, last=True)
