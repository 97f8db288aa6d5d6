"""Rules for kto (XP638 to XP640)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = chosen("method", "kto")


@rule("XP638", "one-row-without-a-neighbour")
def kto_batch(spec: Spec) -> Iterator[Finding]:
    """kto needs at least two rows in a micro-batch. Accumulation does not make up for a micro-batch of one row, because
    kto compares only rows of the same micro-batch. The loss `apo_zero_unpaired` needs only one row, because it has no
    KL term.

    Why it is bad: kto estimates its KL term from the completions of the other rows in the micro-batch. A micro-batch of
    one row has no other rows.

    Without this rule: ValueError, after the data is tokenized.

    Source: `kto_trainer.py` of trl 1.16 and 0.18; confirmed by running it.
    """
    if spec.integer("batch.micro") == 1 and spec.losses == ("kto",):
        gbs, world = spec.integer("batch.gbs"), spec.hardware.world
        path: Path = "batch.micro" if spec.written("batch.micro") else "batch.gbs"
        yield Finding(
            spec.location(
                path, "" if path == "batch.micro" else f"{gbs} on {world} processes leaves a micro-batch of 1"
            ),
            "kto needs at least two rows in a micro-batch",
            "write `micro = 2`" if gbs % (2 * world) == 0 else f"write `gbs = {2 * world}` and `micro = 2`",
            (spec.label("method", "the method"),),
        )


@rule("XP639", "kto-out-of-order")
def kto_order(spec: Spec) -> Iterator[Finding]:
    """`train_sampling_strategy` must be unset or `sequential` for kto, because kto's rows must keep the order in which
    they were paired. Rows are still shuffled once: the bundle's runtime does this before kto pairs them.

    Why it is bad: kto pairs each completion with its neighbour in the same micro-batch before training.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: trl 1.16 `kto_trainer.py`; confirmed by running it.
    """
    strategy = spec.extra_value("trl", "train_sampling_strategy")
    if spec.losses == ("kto",) and strategy not in (None, "sequential"):
        yield Finding(
            spec.extra_location("trl", "train_sampling_strategy", "changes the order"),
            "kto's rows must keep their order",
            write("train_sampling_strategy = sequential", ", or leave it out"),
            (spec.label("method", "the method"),),
        )


@rule("XP640", "kto-out-of-balance", "warning")
def kto_balance(spec: Spec) -> Iterator[Finding]:
    """kto's weights `desirable` and `undesirable` should make up for different numbers of good and bad answers, as in
    equation 8 of the kto paper. This rule counts the labels in local files.

    Why it is bad: the more frequent kind of answer dominates the loss, unless the weights make up for the difference.

    Without this rule: trl only warns, after the data is tokenized.

    Source: `kto_trainer.py` of trl 1.16 and 0.18; arXiv 2402.01306.
    """
    good = bad = 0
    for entry, source in ((one, part) for one in spec.data for part in one.of_split(one.split)):
        found = rows.survey(source)
        if source.shape != "unpaired" or entry.take is not None or found is None or found.broken is not None:
            return
        good, bad = good + found.labels[0], bad + found.labels[1]
    if not good or not bad:
        if good or bad:
            only, other = ("good", "bad") if good else ("bad", "good")
            yield Finding(
                spec.data[0].label,
                f"all {good or bad} answers are {only}",
                f"add {other} answers: the loss compares the two kinds",
            )
        return
    up, down = spec.real("method.desirable"), spec.real("method.undesirable")
    lows = round(bad * down / good, 2), round(good * up / bad / 1.33, 2)
    highs = round(bad * down / good * 1.33, 2), round(good * up / bad, 2)
    if good != bad and not (lows[0] <= up <= highs[0] or lows[1] <= down <= highs[1]):
        path = "desirable" if spec.written("method.desirable") else "undesirable"
        better = lows[0] if path == "desirable" else lows[1]
        yield Finding(
            spec.data[0].label,
            f"{good} good and {bad} bad answers, weighted {up:g} and {down:g}",
            f"write `{path} = {better:g}`, or a number up to {highs[0] if path == 'desirable' else highs[1]:g}",
            (spec.label("method.desirable"), spec.label("method.undesirable")),
        )


@rule("XP686", "answers-of-no-weight")
def no_weight(spec: Spec) -> Iterator[Finding]:
    """At least one of kto's weights, `desirable` and `undesirable`, must be above 0.

    Why it is bad: the loss sums the good and the bad answers, each multiplied by its weight, so two weights of 0 leave
    nothing to learn.

    Without this rule: nothing is reported; the loss and all gradients are 0.

    Source: trl 1.16 `kto_trainer.py` (`desirable_weight`); confirmed by running it.
    """
    if spec.get("method.desirable") == 0 and spec.get("method.undesirable") == 0:
        yield Finding(
            spec.location("method.desirable", "0"),
            "nothing is learned: good and bad answers have the weight 0",
            write("desirable = 1"),
            (spec.label("method.undesirable", "0"),),
        )
