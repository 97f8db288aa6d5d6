"""Choose strategy, recomputation and micro-batch if the spec does not state them.

The plan compares combinations that compute the same numbers. From the combinations that fit, it takes the one with the
most predicted tokens per second. The prediction includes the time of the strategy's communication. Strategies are tried
in groups: DDP, then ZeRO-1 and ZeRO-2, then ZeRO-3, which communicates most. A choice depends only on the spec and on
this version's tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from xpc.compiler.language.items import DERIVED
from xpc.compiler.language.setting import FlagPath, Path
from xpc.compiler.plan import BUDGET, CHOSEN, FITS, GIB, NO, verdict
from xpc.compiler.plan.changed import Settings, changed, legality, searched
from xpc.compiler.plan.divisors import divisors
from xpc.compiler.plan.from_spec import load_of, speed_of
from xpc.compiler.plan.load import Load, UnknownMemory
from xpc.compiler.plan.memory import memory
from xpc.compiler.plan.quick_estimate import Micro
from xpc.compiler.spec import Spec
from xpc.grammar.record import record

RECOMPUTE: FlagPath = "memory.checkpointing"
LEARNED = "the smallest size, because a larger one would change what is learned"
"""The reason that is shown for a micro-batch of 1 (for the method kto: 2) if a larger one would change what is learned.
"""
HARDLY = 0.005
"""If nothing fits, the plan compares micro-batches with a micro-batch of one row, and chooses the largest that needs at
most this share of additional memory.
"""


@record
class Choice:
    """The values that the plan chose. `values` maps each setting to a pair: the chosen value, and the calculation as
    text. `micro` is None if the spec states the micro-batch.
    """

    values: dict[Path, tuple[object, str]]
    micro: Micro | None


@record
class Candidate:
    """A combination of settings with two predictions for the run: its peak in GiB, and its tokens per second on one GPU
    (`pace`, 0 if the speed is unknown).
    """

    settings: Settings
    peak: float
    pace: float

    @property
    def arithmetic(self) -> str:
        """The speed and memory of these settings, as text."""
        pace = f"{self.pace:,.0f} tokens/s a GPU in " if self.pace else ""
        return f"{pace}{self.peak:.1f} GiB"


def chosen(spec: Spec, unset: Sequence[Path]) -> Choice | None:
    """Choose values for settings that the spec does not state. None if the plan cannot decide or nothing fits.

    `unset` are the settings to choose: some of `strategy`, `memory.checkpointing` and `batch.micro`. The memory of a
    partly frozen layer is only known as an upper bound, so the choice uses this bound. The plan never chooses whether
    activations are offloaded, because the cost of copying them is unknown.
    """
    if spec.hardware.gpu is None:
        return Choice({}, _fixed_micro(spec)) if spec.learns_from_micro and "batch.micro" in unset else None
    if spec.flag("memory.offload_activations"):
        return None
    return searched(_with_fixed_micro if spec.learns_from_micro else _search, spec, unset)


def _with_fixed_micro(spec: Spec, unset: Collection[Path]) -> Choice | None:
    """Choose strategy and recomputation for a method whose result depends on the micro-batch. The micro-batch has a
    fixed size. If it were the largest that fits, the method's result would depend on the GPU's memory.
    """
    if "batch.micro" not in unset:
        return _search(spec, unset)
    mine = _fixed_micro(spec)
    own = changed(spec, {"batch.micro": mine.value})
    found = _search(own, [path for path in unset if path != "batch.micro"])
    return Choice({} if found is None else found.values, mine)


def _fixed_micro(spec: Spec) -> Micro:
    """The micro-batch for a method whose result depends on the micro-batch: 2 for kto if possible, otherwise 1."""
    pair = spec.text("method") == "kto" and spec.integer("batch.gbs") % (2 * spec.replicas) == 0
    return Micro(2 if pair else 1, LEARNED)


def unset(spec: Spec) -> list[Path]:
    """The settings of CHOSEN that the plan has to choose, because the spec does not state them."""
    micro = [] if spec.written("batch.accum") else ["batch.micro"]
    return [path for path in CHOSEN if not spec.written(path) and (path != "batch.micro" or micro)]


def rechosen(spec: Spec, settings: Settings) -> Spec:
    """A copy of the spec as if a user had written these settings into it: the plan chooses again all settings that the
    changed spec does not state.
    """
    left = [path for path in unset(spec) if path not in settings]
    usual: dict[Path, object] = {"strategy": "ddp"} if "strategy" in left else {}
    if RECOMPUTE in left and spec.values[RECOMPUTE].origin.kind == DERIVED:
        usual[RECOMPUTE] = True
    open_ = changed(spec, {**settings, **usual})
    found = chosen(open_, left) if left else None
    if found is None:
        return open_
    micro: Settings = {} if found.micro is None else {"batch.micro": found.micro.value}
    return changed(open_, {**{path: value for path, (value, _) in found.values.items()}, **micro})


def _search(spec: Spec, unset: Collection[Path]) -> Choice | None:
    try:
        load_of(spec)
    except UnknownMemory:
        return None
    tried: list[str] = []
    legal = legality(spec)
    for group in _groups(spec, unset):
        tried += [str(one.get("strategy", spec.text("strategy"))) for one in group]
        found = [candidate for one in group for candidate in _candidates(spec, one, unset)]
        # `sorted` keeps the order of combinations with equal speed: the strategy that shards less comes first, and for
        # one strategy, the combination with recomputation.
        for best in sorted(found, key=lambda candidate: -candidate.pace):
            if "strategy" not in best.settings or legal(best.settings):
                return _choice_of(spec, best, found, unset, tried)
    assert spec.hardware.gpu is not None
    room, groups = spec.hardware.gpu.memory_gib, _groups(spec, unset)
    candidates = [candidate for group in groups for one in group if (candidate := _least(spec, one, unset)) is not None]
    for candidate in sorted(candidates, key=lambda candidate: candidate.peak):
        if "strategy" not in candidate.settings or (verdict(candidate.peak, room) != NO and legal(candidate.settings)):
            return _least_choice(candidate, room)
    return None


def _least(spec: Spec, strategy: Settings, unset: Collection[Path]) -> Candidate | None:
    """The settings to use with a strategy if nothing fits. Their micro-batch is the largest that needs hardly more
    memory than the smallest micro-batch (at most the share HARDLY more).
    """
    candidate: Candidate | None = None
    least = 0.0
    for micro in _open_micros(spec, strategy) if "batch.micro" in unset else [None]:
        settings: Settings = strategy if micro is None else {**strategy, "batch.micro": micro}
        estimate = _held(changed(spec, settings))
        if estimate is None or (candidate is not None and estimate[1] > (1 + HARDLY) * least):
            break
        candidate, least = Candidate(settings, estimate[1] / GIB, 0.0), least or estimate[1]
    return candidate


def _least_choice(candidate: Candidate, room: float) -> Choice | None:
    """The choice to make if nothing fits. Its text says how much memory the run would need. `room` is the GPU's memory
    in GiB.
    """
    why = f"nothing fits: the smallest choice needs {candidate.peak:.1f} GiB, more than {BUDGET:.0%} of {room:g} GiB"
    strategy, micro = candidate.settings.get("strategy"), candidate.settings.get("batch.micro")
    values: dict[Path, tuple[object, str]] = {} if strategy is None else {"strategy": (strategy, why)}
    chosen = Micro(micro, why) if isinstance(micro, int) else None
    return Choice(values, chosen) if values or chosen is not None else None


def _groups(spec: Spec, unset: Collection[Path]) -> Iterator[tuple[Settings, ...]]:
    """Yield groups of strategies in the order in which the plan tries them. For bf16, the first group is ddp, the
    second zero1 and zero2, the third zero3. If the spec states a strategy, there is one group with this strategy.

    The strategies of one group compute the same numbers, except for the order in which sums are computed
    (`changes.alike`).
    """
    own: Settings = {}
    alike: tuple[Settings, ...] = ({"strategy": "zero1"}, {"strategy": "zero2"})
    open_ = "strategy" in unset and spec.hardware.world > 1 and spec.text("strategy") == "ddp"
    if not open_ or any(spec.written(path) for path in spec.values if path.startswith("strategy.")):
        yield (own,)
        return
    if spec.text("precision") == "fp32":
        yield (own, *alike)
    else:
        yield (own,)
        yield alike
    yield ({"strategy": "zero3"},)


def _candidates(spec: Spec, strategy: Settings, unset: Collection[Path]) -> Iterator[Candidate]:
    """Yield the best combination with recomputation. If the spec does not state recomputation and the speed is known,
    also yield the best combination without recomputation.
    """
    recomputes = _largest(spec, strategy, unset)
    if recomputes is not None:
        yield recomputes
    if RECOMPUTE in unset and spec.flag(RECOMPUTE) and (recomputes is None or recomputes.pace):
        keeps = _largest(spec, {**strategy, RECOMPUTE: False}, unset)
        if keeps is not None and keeps.pace:
            yield keeps


def _largest(spec: Spec, settings: Settings, unset: Collection[Path]) -> Candidate | None:
    """The combination with the largest micro-batch that fits, because the plan predicts that a larger micro-batch is
    faster. None if no micro-batch fits.
    """
    left = _open_micros(spec, settings) if "batch.micro" in unset else []
    open_ = bool(left)
    left = left or [spec.integer("batch.micro")]
    # try the largest micro-batch first: it may need no accumulation, and then no gradients are stored between
    # micro-batches
    best, middle = None, len(left) - 1
    while left:
        own: Settings = {**settings, "batch.micro": left[middle]} if open_ else settings
        candidate = _fits(changed(spec, own), own)
        best = candidate or best
        left = left[middle + 1 :] if candidate is not None else left[:middle]
        middle = len(left) // 2
    return best


def _open_micros(spec: Spec, settings: Settings) -> list[int]:
    """The micro-batches that divide a replica's share of the global batch, the smallest first. Empty if the global
    batch cannot be divided among the replicas.
    """
    share, rest = divmod(spec.integer("batch.gbs"), spec.replicas)
    if share < 1 or rest:
        return []
    if settings.get("strategy", spec.text("strategy")) == "zero2" and not spec.stack.facts.zero2_accumulates:
        # on this stack, zero2 cannot accumulate gradients, so a process's part of the batch must be one micro-batch
        return [share]
    return divisors(share, share)


def _fits(spec: Spec, settings: Settings) -> Candidate | None:
    estimate, gpu = _held(spec), spec.hardware.gpu
    if estimate is None or gpu is None or verdict(estimate[1], gpu.memory_gib * GIB) != FITS:
        return None
    pace = speed_of(spec, estimate[0])
    return Candidate(settings, estimate[1] / GIB, 0.0 if pace is None else pace.tokens)


def _held(spec: Spec) -> tuple[Load, float] | None:
    """Return a pair: the quantities that decide the memory of one GPU, and the predicted peak in bytes. None if the
    quantities or the peak are unknown.
    """
    try:
        load = load_of(spec)
        return load, memory(load).peak
    except UnknownMemory:
        return None


def _choice_of(
    spec: Spec, best: Candidate, found: list[Candidate], unset: Collection[Path], tried: list[str]
) -> Choice:
    """Return the best combination of settings as a Choice. The text for each value contains the calculation for this
    value and for its alternatives.
    """
    gpu, usual = spec.hardware.gpu, spec.text("strategy")
    assert gpu is not None  # the plan chooses nothing for runs on a CPU
    values: dict[Path, tuple[object, str]] = {}
    mine = best.settings.get("strategy", usual)
    if mine != usual:
        others = {
            name: [candidate for candidate in found if candidate.settings.get("strategy", usual) == name]
            for name in tried
        }
        values["strategy"] = (
            mine,
            _compared(best, {name: candidates for name, candidates in others.items() if name != mine}),
        )
    if RECOMPUTE in unset and spec.flag(RECOMPUTE) and best.pace:
        keeps = RECOMPUTE in best.settings
        same = [candidate for candidate in found if candidate.settings.get("strategy", usual) == mine]
        other = [candidate for candidate in same if (RECOMPUTE in candidate.settings) != keeps]
        values[RECOMPUTE] = not keeps, _compared(best, {"with it" if keeps else "without it": other})
    micro = best.settings.get("batch.micro")
    share = spec.integer("batch.gbs") // spec.replicas
    room = f"{BUDGET:.0%} of {gpu.memory_gib:g} GiB"
    why = f"the largest divisor of {share} that fits: a planned {best.peak:.1f} GiB, within {room}"
    return Choice(values, Micro(micro, why) if isinstance(micro, int) else None)


def _compared(best: Candidate, others: Mapping[str, list[Candidate]]) -> str:
    """A text that compares the best combination with the best combination of each alternative. For the alternative with
    recomputation, for example: `20,305 tokens/s a GPU in 41.5 GiB; with it 18,026 tokens/s a GPU in 31.9 GiB`.
    """
    parts = [best.arithmetic]
    for name, candidates in others.items():
        best_other = max(candidates, key=lambda candidate: candidate.pace).arithmetic if candidates else "does not fit"
        parts.append(f"{name} {best_other}")
    return "; ".join(parts)
