"""The rule about values that are far outside of the published ones (XP586), and its table."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.numerics.batch import LEAST_CLIP, LEAST_RATE, LEAST_TEMPERATURE, total_steps
from xpc.compiler.spec import Spec
from xpc.grammar.record import record

WHEN = written(
    "optimizer.lr", "optimizer.eps", "optimizer.betas", "optimizer.weight_decay", "optimizer.clip", "lora.alpha",
    "lora.rank", "lora.dropout", "method.beta", "method.temperature", "method.epsilon", "schedule.warmup", "batch.seq",
    "train.epochs",
)  # fmt: skip

ADAM = ("adamw", "adamw_torch", "adamw_fused", "adamw8bit", "paged_adamw", "paged_adamw8bit")
ONLINE = ("grpo", "rloo")


@record
class Range:
    """The values of a setting that are plausible: from `low` to `high`, both included. `published` says which values
    are published and where; the range is wider than these by a factor.

    The range applies to the methods in `methods` and the optimizers in `optimizers` (all, if empty), and to runs with
    (`adapter` is True) or without LoRA. Up to `handled`, and from `refused` on, another rule
    reports the value. `typed` is a usual value.
    """

    path: Path
    low: float
    high: float
    typed: str
    published: str
    methods: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    adapter: bool | None = None
    handled: float = 0.0
    refused: float = float("inf")

    def concerns(self, spec: Spec) -> bool:
        """Whether the range applies to the spec's method, optimizer and adapter."""
        return (
            (not self.methods or spec.text("method") in self.methods)
            and (not self.optimizers or spec.text("optimizer") in self.optimizers)
            and self.adapter in (None, spec.get("lora") is not None)
        )


RATE: Path = "optimizer.lr"
RANGES = (
    Range(RATE, 1e-8, 5e-3, "lr = 2e-5", "5e-7 to 2e-3 without adapters", (), ADAM, False, LEAST_RATE),
    Range(RATE, 2e-6, 1e-2, "lr = 2e-4", "1e-5 to 3e-3 with LoRA", ("sft",), ADAM, True, LEAST_RATE),
    Range(RATE, 1e-8, 1e-2, "lr = 1e-5", "1e-6 to 3e-3 with LoRA", ("dpo", "kto", *ONLINE), ADAM, True, LEAST_RATE),
    Range("optimizer.eps", 0, 1e-3, "eps = 1e-8", "1e-8 to 1e-5", (), ADAM),
    Range("optimizer.weight_decay", 0, 1, "weight_decay = 0.1", "0 to 0.1", (), ADAM),
    Range("optimizer.clip", 1e-3, float("inf"), "clip = 1", "0.2 to 1", handled=LEAST_CLIP),
    Range("lora.dropout", 0, 0.5, "dropout = 0.05", "0 to 0.2", refused=1),
    Range("method.beta", 1e-4, 10, "beta = 0.1", "0.01 to 0.9", ("dpo",)),
    Range("method.beta", 0, 10, "beta = 0.1", "0.1 to 0.5", ("kto", "orpo")),
    Range("method.beta", 0, 1, "beta = 0.04", "0 to 0.04", ONLINE),
    Range("method.epsilon", 0, 1, "epsilon = 0.2", "3e-4 to 0.2", ONLINE),
    Range("method.temperature", 0.1, 2, "temperature = 1", "0.6 to 1", ONLINE, handled=LEAST_TEMPERATURE),
    Range("schedule.warmup", 0, 0.9, "warmup = 3%", "3 to 10 % of the run"),
    Range("batch.seq", 16, float("inf"), "seq = 2048", "512 to 65536", handled=1),
    Range("train.epochs", 0, 500, "for 3 epochs", "1 to 150"),
)
"""The ranges, in the order in which they are reported. The published values are the least and the largest in the
recipes of the alignment handbook, open-r1, FastChat, axolotl and LLaMA-Factory, and in the documentation of TRL.
"""
LEAST_SCALE, LARGEST_SCALE = 1 / 64, 128
"""Bounds of alpha / rank. Published are 1/2 to 2."""
LEAST_BETAS = (0.5, 0.8)
"""The least plausible betas of Adam. Published are 0.9, and 0.95 to 0.999."""


@rule(
    "XP586",
    "far-from-published",
    "warning",
    reads=(
        RATE, "optimizer.eps", "optimizer.weight_decay", "optimizer.clip", "lora.dropout", "method.beta",
        "method.epsilon", "method.temperature", "schedule.warmup", "batch.seq",
        "train.epochs", "lora", "method", "optimizer",
    ),
)  # fmt: skip
def far_from_published(spec: Spec) -> Iterator[Finding]:
    """A number that the spec states must not be far outside of the numbers that recipes and papers publish for the
    same method. For example, AdamW with `eps = 1` is 1,000 times above its range. A comment silences the warning where
    the value is meant.

    Why it is bad: such a number is nearly always a typing mistake or the number of another method, such as the rate of
    full training for LoRA. The run learns nearly nothing, or its loss diverges.

    Without this rule: nothing is reported; the libraries accept every number.

    Source: the recipes of the alignment handbook, open-r1, FastChat, axolotl and LLaMA-Factory.
    """
    for one in RANGES:
        if spec.written(one.path) and one.concerns(spec):
            value = _number(spec, one.path)
            if value is not None and one.handled < value < one.refused and not one.low <= value <= one.high:
                yield _finding(spec, one.path, value, one.published, one.typed)
    yield from _scale(spec)
    yield from _betas(spec)


def _number(spec: Spec, path: Path) -> float | None:
    """The setting's number. A warm-up is its share of the run, None if the run's steps are unknown. A warm-up as long
    as the run, or longer, is None: XP203 reports it.
    """
    value = spec.get(path)
    if path == "schedule.warmup" and isinstance(value, Amount):
        steps = total_steps(spec)
        share = value.value if value.unit == "share" else value.value / steps if steps else None
        return None if share is None or share >= 1 or (steps and value.steps(steps) >= steps) else share
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _finding(spec: Spec, path: Path, value: float, published: str, typed: str) -> Finding:
    name = path.rpartition(".")[2]
    return Finding(
        spec.location(path, f"published: {published}"),
        f"`{name} = {value:g}` is far outside of what is published",
        write(typed, ", or silence the warning with the reason"),
    )


def _scale(spec: Spec) -> Iterator[Finding]:
    """Report an alpha that scales the update of LoRA by nearly nothing, or by far too much."""
    alpha, rank = spec.get("lora.alpha"), spec.get("lora.rank")
    if not spec.written("lora.alpha") or not alpha or not rank or spec.get("lora.rslora"):
        return
    if not LEAST_SCALE <= alpha / rank <= LARGEST_SCALE:
        yield Finding(
            spec.location("lora.alpha", f"alpha / rank = {alpha / rank:g}; published: 1/2 to 2"),
            "`alpha` scales the adapter far outside of what is published",
            write(f"alpha = {2 * rank}", ", or silence the warning with the reason"),
            (spec.label("lora.rank"),),
        )


def _betas(spec: Spec) -> Iterator[Finding]:
    """Report betas of Adam that average over hardly any steps."""
    betas = spec.get("optimizer.betas")
    if not spec.written("optimizer.betas") or spec.text("optimizer") not in ADAM or not isinstance(betas, tuple):
        return
    if any(beta < least for beta, least in zip(betas, LEAST_BETAS)):  # some optimizers have three
        yield Finding(
            spec.location("optimizer.betas", "published: 0.9, and 0.95 to 0.999"),
            "`betas` average over hardly any steps",
            write("betas = [0.9, 0.999]", ", or silence the warning with the reason"),
        )
