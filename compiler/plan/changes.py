"""Find changes of settings that make a run fit its GPUs or make it faster. Each suggestion is based on a plan of the
changed run.

With one exception (see `fitting`), no change affects what the model learns: the global batch, the lengths, the rows,
the loss and the trained parameters stay the same. Changes are tried in tiers, the cheapest tier first: only the
micro-batch, recomputation and fused kernels, then a higher stage of ZeRO, then offloading (which sends states over the
host's bus), then more nodes. Within a tier, changes are ordered by their predicted tokens per second, in which the
strategy's communication is included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from xpc.compiler.language.setting import Path
from xpc.compiler.language.strategies import SPREADS
from xpc.compiler.plan import CHOSEN, FITS, GIB, TIGHT
from xpc.compiler.plan.changed import Settings, changed, legality, searched
from xpc.compiler.plan.choice import rechosen, unset
from xpc.compiler.plan.divisors import divisors
from xpc.compiler.plan.experiment import Plan, plan
from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.load import UnknownMemory
from xpc.compiler.spec import Spec
from xpc.grammar.record import field, record

STRATEGIES = ("zero1", "zero2", "zero3")
OFFLOADS = ("none", "optimizer", "cpu")
MORE_NODES = (2, 4, 8)
LEAST_GAIN = 0.01
"""A change is suggested only if it makes training faster by at least this share."""
MOST = 3
"""At most this many changes are suggested. A caller of `fitting` can pass a smaller number."""


@record
class Change:
    """A change: settings with their new values, and the plan of the changed run. `follows` has the further settings
    whose values change: the spec does not state them, and the plan of the changed run chooses other values for them
    than the plan of the unchanged run.

    `pace` is the ratio of the changed run's tokens per second to the unchanged run's, or None if no speed is predicted.
    """

    settings: Settings
    plan: Plan
    pace: float | None
    follows: Settings = field(factory=dict)

    @property
    def typed(self) -> list[str]:
        """The changed settings as a user writes them in a spec."""
        return list(forms(self.settings, self.plan.spec.get("strategy.offload")))

    @property
    def also(self) -> list[str]:
        """A phrase for each setting that changes as a consequence, such as `checkpointing goes off`."""
        return [_followed(path, value) for path, value in self.follows.items()]


def fitting(spec: Spec, most: int = MOST) -> list[Change]:
    """Find the best change of each tier (such as offloading) that makes a run fit, at most `most` changes. The cheapest
    change comes first.

    If no change has the verdict FITS, changes with the verdict TIGHT are returned. If no change has the verdict TIGHT
    either, one change that affects what the model learns is returned, and its text says so. If nothing helps, the
    result is empty. Members of a sweep that differ only in a rate or a seed share one search.
    """
    return searched(_fitting, spec, most)


def faster(spec: Spec) -> list[Change]:
    """Find at most three changes that make a run faster while it still fits, the largest gain first."""
    return searched(_faster, spec)


def effect(one: Change) -> str:
    """The effect of a change in words: `54.1 GiB, 19% slower`."""
    peak = one.plan.peak
    parts = [] if peak is None else [f"{peak.value / GIB:.1f} GiB"]
    if one.plan.verdict != FITS:
        parts.append(one.plan.verdict)
    if "strategy.offload" in one.settings:
        parts.append("slower: offloaded states cross the host's bus")
    pace = one.pace
    if pace is not None and pace >= 2:
        parts.append(f"{pace:.1f} times as fast")
    elif pace is not None and abs(pace - 1) >= 0.005:
        parts.append(f"{abs(pace - 1):.0%} {'slower' if pace < 1 else 'faster'}")
    if "batch.micro" in one.settings and one.plan.spec.learns_from_micro:
        parts.append("and changes what is learned: the micro-batch is part of the loss")
    also = " and ".join(one.also)
    return ", ".join(parts) + (f"; {also}" if also else "")


def _followed(path: Path, value: object) -> str:
    name = path.rpartition(".")[2]
    return f"{name} goes {'on' if value else 'off'}" if isinstance(value, bool) else f"{name} becomes {value}"


def _fitting(spec: Spec, most: int) -> list[Change]:
    now, legal = plan(spec), legality(spec)
    for wanted in (FITS, TIGHT) if now.verdict not in (FITS, TIGHT) else (FITS,):
        found: dict[frozenset[Path], list[Change]] = {}
        for tier in tiers(spec):
            kind = frozenset(tier)  # of 2 and 4 nodes, for example, only the first that helps is kept
            if kind not in found and sum(map(len, found.values())) < most:
                changes = [one for one in _alternatives(spec, now, tier, wanted) if legal(_decided(one))]
                if changes:
                    found[kind] = changes[:1] if tier else changes
        if found:
            return [one for changes in found.values() for one in changes][:most]
    return list(islice(_learning_otherwise(spec, now), 1)) if spec.learns_from_micro else []


def _learning_otherwise(spec: Spec, now: Plan) -> Iterator[Change]:
    """Yield changes to a smaller micro-batch with which the run fits, the largest micro-batch first. What the method
    learns depends on the micro-batch, so these changes are suggested only if nothing else helps.
    """
    legal, share, mine = legality(spec), spec.integer("batch.gbs") // spec.replicas, spec.integer("batch.micro")
    for micro in divisors(mine - 1, share)[::-1]:
        for toggles in _toggles(spec, more=True):
            one = as_typed(spec, now, {**micro_settings(spec, micro), **toggles})
            if one.plan.verdict == FITS and legal(_decided(one)):
                yield one


def _faster(spec: Spec) -> list[Change]:
    now = plan(spec)
    if now.verdict != FITS or now.speed is None:
        return []
    mine = spec.text("strategy")
    found = [
        one
        for name in (mine, *(other for other in alike(spec) if other != mine))
        for toggles in _toggles(spec, more=False)
        for micro in _written_micros(spec)
        if (one := as_typed(spec, now, _with(spec, name, micro, toggles))).plan.verdict == FITS
    ]
    gains = [one for one in found if one.settings and one.pace is not None and one.pace >= 1 + LEAST_GAIN]
    legal = legality(spec)
    return list(islice((one for one in _apart(gains) if legal(_decided(one))), MOST))


def _decided(one: Change) -> Settings:
    """The settings of a change, together with the settings that the plan chose for the changed run. The caller tests
    whether this combination is legal.
    """
    return {**{path: one.plan.spec.get(path) for path in CHOSEN}, **one.settings}


def _written_micros(spec: Spec, most: int | None = None) -> Sequence[int]:
    """The micro-batches to try. If the spec does not state a micro-batch, the result is only the current micro-batch:
    the plan of each changed run then chooses the best micro-batch itself.
    """
    return [spec.integer("batch.micro")] if "batch.micro" in unset(spec) else micros(spec, most)


def _with(spec: Spec, strategy: str, micro: int, toggles: Settings) -> Settings:
    """The settings to change so that a spec has this strategy, micro-batch and recomputation. Settings that already
    have their new value are left out.
    """
    other: Settings = {} if strategy == spec.text("strategy") else {"strategy": strategy}
    return {**other, **micro_settings(spec, micro), **toggles}


def _apart(found: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes, the fastest first. Two kinds of changes are dropped: a change that only adds settings to a
    faster change, and a change that gives other values to exactly the settings of a faster change.
    """
    seen: dict[frozenset[Path], Change] = {}
    for one in sorted(found, key=lambda one: (-(one.pace or 0.0), len(one.settings))):
        simpler = any(other.settings.items() <= one.settings.items() for other in seen.values())
        if frozenset(one.settings) not in seen and not simpler:
            seen[frozenset(one.settings)] = one
            yield one


def planned(spec: Spec, now: Plan, settings: Settings) -> Change:
    """Plan the run with only the settings `settings` changed. Return the change with its relative speed."""
    return _change(now, settings, plan(changed(spec, settings)))


def as_typed(spec: Spec, now: Plan, settings: Settings) -> Change:
    """Plan the run as if a user had written these settings into the spec: the plan chooses anew all settings that the
    changed spec does not state. Return the change with its relative speed.
    """
    return _change(now, settings, plan(rechosen(spec, settings)))


def _change(now: Plan, settings: Settings, found: Plan) -> Change:
    pace = None
    if found.speed is not None and now.speed is not None:
        gpus = found.spec.hardware.world / now.spec.hardware.world
        pace = gpus * found.speed.tokens / now.speed.tokens
    after = found.spec
    follows = {path: after.get(path) for path in CHOSEN if after.get(path) != now.spec.get(path)}
    return Change(settings, found, pace, {path: one for path, one in follows.items() if path not in settings})


def _alternatives(spec: Spec, now: Plan, tier: Settings, wanted: str) -> list[Change]:
    """The changes with the settings `tier` (such as offloading) whose plans have the verdict FITS or `wanted`, the
    fastest first. Each change has the largest micro-batch with such a verdict.
    """
    found: list[Change] = []
    base = changed(spec, tier)
    for toggles in _toggles(spec, more=True):
        left, best = _written_micros(base, base.integer("batch.micro")), None
        # The unchanged micro-batch is tried first, because with a smaller one the run may have to accumulate gradients,
        # and to store them between micro-batches.
        middle = 0
        while left:  # bisection is correct here, because a smaller micro-batch never needs more memory
            tried = as_typed(spec, now, {**tier, **micro_settings(base, left[middle]), **toggles})
            fits = tried.plan.verdict in (FITS, wanted)
            best = tried if fits else best
            left = left[:middle] if fits else left[middle + 1 :]
            middle = len(left) // 2
        if best is not None and not any(_adds_fusing(best, other) for other in found):
            found.append(best)
    return list(_apart(found)) if now.speed is not None else sorted(found, key=lambda one: len(one.settings))


def _adds_fusing(one: Change, other: Change) -> bool:
    """Whether the only difference between the changes `one` and `other` is that `one` also turns on Liger's kernels."""
    rest = {path: value for path, value in one.settings.items() if path != "memory.liger"}
    return len(rest) < len(one.settings) and rest == other.settings


def tiers(spec: Spec) -> Iterator[Settings]:
    """The settings of each tier. The tiers are, in this order: none (only micro-batch, recomputation and fused kernels
    change), another strategy, offloading, more nodes.
    """
    yield {}
    strategy, offload = spec.text("strategy"), str(spec.get("strategy.offload") or "none")
    many = spec.hardware.world > 1
    spread = SPREADS.get(strategy, 0) if many or strategy in STRATEGIES else 0  # FSDP needs several GPUs
    stronger = [name for name in STRATEGIES if SPREADS[name] > spread] if many else []
    for name in stronger:
        yield {"strategy": name}
    for wanted in OFFLOADS[OFFLOADS.index(offload) + 1 :]:
        own = [strategy] if spread >= 2 else []
        for name in [*own, *(name for name in STRATEGIES[1:] if SPREADS[name] > max(1, spread))]:
            if wanted == "optimizer" or SPREADS[name] == 3:
                yield {"strategy": name, "strategy.offload": wanted}
    for times in MORE_NODES if many and spec.hardware.processes > 1 else ():
        for name in dict.fromkeys((strategy, "zero3" if spread < 3 else strategy)):
            if spec.integer("batch.gbs") % (spec.replicas * times) == 0:
                more: dict[Path, object] = {"nodes": spec.hardware.nodes * times}
                # state gbs, because a gbs that the spec does not state would grow with the number of GPUs
                if not spec.written("batch.gbs"):
                    more["batch.gbs"] = spec.integer("batch.gbs")
                yield more if name == strategy else {"strategy": name, **more}


def _toggles(spec: Spec, more: bool) -> Iterator[Settings]:
    """Combinations of two switches to try: recomputation and fused kernels. To save memory (`more`), recomputation is
    switched on; to save time, it is switched off. Fused kernels are only ever switched on.
    """
    liger: Settings = {"memory.liger": True}
    fuses = not spec.flag("memory.liger") and _loss(changed(spec, liger)) != _loss(spec)
    moved = spec.flag("memory.checkpointing") is not more and "memory.checkpointing" not in unset(spec)
    recompute: Settings = {"memory.checkpointing": more} if moved else {}
    yield {}
    if recompute:
        yield recompute
    if fuses:
        yield liger
    if fuses and recompute:
        yield {**recompute, **liger}


def _loss(spec: Spec) -> str:
    try:
        return load_of(spec).loss
    except UnknownMemory as error:
        return str(error)


def alike(spec: Spec) -> tuple[str, ...]:
    """The strategies that compute the same weights as the spec's strategy, up to the order of sums.

    All stages of ZeRO compute the same weights. DDP computes the same weights as ZeRO in fp32, but not in half
    precision, where the two round differently: DDP computes under autocast, and DeepSpeed computes with half-precision
    weights and keeps an fp32 copy of them.
    """
    mine = spec.text("strategy")
    offload = spec.get("strategy.offload") not in (None, "none")
    if spec.hardware.world == 1 or mine not in ("ddp", *STRATEGIES):
        return (mine,)
    if spec.text("precision") != "fp32":
        return STRATEGIES if mine in STRATEGIES else (mine,)
    return STRATEGIES if offload else ("ddp", *STRATEGIES)


def micros(spec: Spec, most: int | None = None) -> Sequence[int]:
    """The micro-batches up to `most` that change neither the global batch nor what the model learns, the largest
    first.
    """
    share, now = spec.integer("batch.gbs") // spec.replicas, spec.integer("batch.micro")
    if share < 1 or spec.learns_from_micro or spec.integer("batch.gbs") % spec.replicas:
        return [now]
    return divisors(min(share, most or share), share)[::-1]


def micro_settings(spec: Spec, micro: int) -> Settings:
    """The settings that change the micro-batch and keep the global batch."""
    if micro == spec.integer("batch.micro"):
        return {}
    accum = spec.integer("batch.gbs") // (micro * spec.replicas)
    out: dict[Path, object] = {"batch.micro": micro}
    if spec.written("batch.accum"):
        out["batch.accum"] = accum
    elif not spec.written("batch.gbs"):
        out["batch.gbs"] = spec.integer("batch.gbs")
    if spec.written("eval.micro") and (spec.get("eval.micro") or 0) > micro:
        out["eval.micro"] = micro
    return out


def forms(settings: Settings, offload: object = None) -> Iterator[str]:
    """Yield the settings as a user would write them in a spec. A new strategy is written together with the spec's
    `offload`; otherwise the new strategy would not offload.
    """
    for path, value in settings.items():
        if path == "strategy":
            where = settings.get("strategy.offload", offload)
            yield f"strategy {value}" + (f"(offload={where})" if where not in (None, "none") else "")
        elif path.startswith("memory."):
            name = path.removeprefix("memory.")
            yield f"memory({name})" if value else f"memory({name} = false)"
        elif path == "nodes":
            yield f"nodes {value}"
        elif path == "eval.micro":
            yield f"eval(micro = {value})"
        elif path != "strategy.offload":
            yield f"{path.rpartition('.')[2]} = {value}"
