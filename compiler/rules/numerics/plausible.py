"""The rule about values that are far outside the range of published values (XP586)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.row_counts import trained
from xpc.compiler.language.kinds import Amount, Rope
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import any_of, chosen, extra, written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.numerics import ranges
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec import Spec

WHEN = any_of(
    written(
        "optimizer.lr", "optimizer.adamw_lr", "optimizer.eps", "optimizer.betas", "optimizer.weight_decay",
        "optimizer.clip", "optimizer.momentum", "optimizer.scale", "schedule.warmup", "schedule.power", "lora.alpha",
        "lora.rank", "lora.dropout", "lora.lr_ratio", "lora.embedding_lr", "method.beta", "method.label_smoothing",
        "method.margin", "method.likelihood", "method.rpo", "method.desirable", "method.undesirable", "method.center",
        "method.sync_reference.mixup", "method.epsilon", "method.epsilon_high", "method.delta", "method.generations",
        "method.iterations", "method.temperature", "method.top_p", "method.min_p", "method.repetition_penalty",
        "batch.seq", "batch.gbs", "train.epochs", "train.steps", "data.holdout", "model.rope",
        "method.max_completion", "method.max_prompt", "strategy.allgather_bucket", "strategy.reduce_bucket",
        "optimizer.update_proj_gap",
    ),
    chosen("method", "cpo"),
    chosen("optimizer", "sgd", "lomo"),
    extra("trl"),
)  # fmt: skip


@rule(
    "XP586",
    "far-from-published",
    "warning",
    reads=(
        *dict.fromkeys(one.path for one in ranges.RANGES), "method", "method.loss", "optimizer", "lora", "qlora", "oft",
        "vera", "loha", "miss",
    ),
)  # fmt: skip
def far_from_published(spec: Spec) -> Iterator[Finding]:
    """A number must not be far outside of the range that recipes and papers publish for the same method. For example,
    `eps = 1` is 1,000 times above the range for AdamW. If the value is intended, silence the warning with a comment.

    Why it is bad: a number far outside of the published range is nearly always a typing mistake or the number of
    another method, such as the learning rate of full training in a run with LoRA. The run learns nothing, or diverges.

    Without this rule: nothing is reported; the libraries accept every number.

    Source: the recipes of the alignment handbook, open-r1, FastChat, axolotl and LLaMA-Factory; TRL's index of papers;
    the examples of peft.
    """
    seen: set[Path] = set()
    for one in ranges.RANGES:
        if one.path in seen or not one.concerns(spec):
            continue
        seen.add(one.path)
        value = _number(spec, one.path)
        if value is not None and one.handled < value < one.refused and not one.low <= value <= one.high:
            yield _finding(spec, one, value)
    yield from _passes(spec)
    yield from _scale(spec)
    yield from _betas(spec)
    yield from _extra(spec)


def _number(spec: Spec, path: Path) -> float | None:
    """The number to compare with the range, or None. A warm-up is converted to its share of the run. The result is None
    if the run's number of steps is unknown, and if the warm-up is as long as the run, which XP203 reports. It is also
    None for a number of rows (`holdout = 2000`): the range is a share of all rows, and their number is unknown.
    """
    value = spec.get(path)
    if path == "schedule.warmup" and isinstance(value, Amount):
        steps = total_steps(spec)
        share = value.value if value.unit == "share" else value.value / steps if steps else None
        return None if share is None or share >= 1 or (steps and value.steps(steps) >= steps) else share
    if isinstance(value, Rope):
        return value.factor
    if isinstance(value, Amount):
        return float(value.value) if value.unit == "share" and value.value < 1 else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _finding(spec: Spec, one: ranges.Range, value: float) -> Finding:
    name = one.path.rpartition(".")[2]
    location, text = one.path, f"`{name} = {value:g}` is far outside of the range of published runs"
    if not spec.written(one.path) and one.default_of is not None:
        location = one.default_of
        text = f"the default `{name} = {value:g}` is far outside of the range of published runs with this setting"
    typed = write(one.typed, ", or silence the warning with the reason")
    return Finding(
        spec.location(location, f"published: {one.published}"),
        text,
        typed if location == one.path else str(typed),
    )


def _passes(spec: Spec) -> Iterator[Finding]:
    """Report a run if its steps make more than `ranges.MOST_EPOCHS` epochs."""
    steps, gbs = spec.get("train.steps"), spec.get("batch.gbs")
    if not isinstance(steps, int) or not isinstance(gbs, int) or spec.online or spec.flag("batch.packing"):
        return

    rows = trained(spec)
    if rows and steps * gbs / rows > ranges.MOST_EPOCHS:
        yield Finding(
            spec.location("train.steps", f"{steps:,} x {gbs} / {rows:,} rows = {steps * gbs / rows:,.0f} epochs"),
            "the run reads its rows far more often than any published recipe",
            "write `for 3 epochs`, or silence the warning with the reason",
        )


def _scale(spec: Spec) -> Iterator[Finding]:
    """Report an alpha that scales the update of LoRA by nearly nothing, or by far too much."""
    alpha, rank = spec.get("lora.alpha"), spec.get("lora.rank")
    if not spec.written("lora.alpha") or not alpha or not rank:
        return
    divisor, name = (rank**0.5, "sqrt(rank)") if spec.get("lora.rslora") else (float(rank), "rank")
    if not ranges.LEAST_SCALE <= alpha / divisor <= ranges.LARGEST_SCALE:
        yield Finding(
            spec.location("lora.alpha", f"alpha / {name} = {alpha / divisor:g}; published: 1/16 to 32"),
            "`alpha` scales the adapter far outside of the range of published runs",
            write(f"alpha = {max(1, round(2 * divisor))}", ", or silence the warning with the reason"),
            (spec.label("lora.rank"),),
        )


def _betas(spec: Spec) -> Iterator[Finding]:
    """Report betas of Adam that are so small that Adam averages over hardly any steps, and betas in reversed order."""
    betas = spec.get("optimizer.betas")
    if not spec.written("optimizer.betas") or spec.text("optimizer") not in ranges.ADAM or not isinstance(betas, tuple):
        return
    # zip stops after two betas: a third beta, which some optimizers have, has no lower limit
    short = any(beta < least for beta, least in zip(betas, ranges.LEAST_BETAS))
    swapped = len(betas) > 1 and betas[1] < betas[0]
    if short or swapped:
        yield Finding(
            spec.location("optimizer.betas", "published: 0.9 to 0.95, and 0.95 to 0.999"),
            "`betas` average over hardly any steps" if short else "the two `betas` are in the wrong order",
            write(
                "betas = [0.9, 0.999]" if short else f"betas = [{betas[1]!r}, {betas[0]!r}]",
                ", or silence the warning with the reason",
            ),
        )


def _extra(spec: Spec) -> Iterator[Finding]:
    """Report an argument in `extra trl` that is far above the published values."""
    for name, high, typed, published in ranges.EXTRA:
        value = spec.extra_value("trl", name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > high:
            yield Finding(
                spec.extra_location("trl", name, f"published: {published}"),
                f"`{name} = {value:g}` is far outside of the range of published runs",
                write(typed, ", or silence the warning with the reason"),
            )
