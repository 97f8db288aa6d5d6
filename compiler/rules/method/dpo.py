"""What dpo's trainers before TRL 1 compute wrongly: losses beside each other, flattened pairs (XP486, XP487)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = chosen("method", "dpo")


@rule("XP486", "ipo-averages-the-others")
def ipo_among_others(spec: Spec) -> Iterator[Finding]:
    """`ipo` takes means over the words of an answer, the other losses of dpo take sums.

    Where a list has both, trl 0.24 hands the means to all of them: a sigmoid then sees differences that are as many
    times smaller as an answer has words. Today, silently. Source: trl 0.24 `dpo_trainer.py` `concatenated_forward`
    (`if "ipo" in self.loss_type`); executed. trl 1.16 takes each loss by itself.
    """
    losses = spec.losses
    others = [one for one in losses if one not in ("ipo", "sft")]
    if spec.stack.facts.ipo_averages_all and "ipo" in losses and others:
        yield Finding(
            spec.place("method.loss", f"`{others[0]}` would get means, too"),
            f"`ipo` beside `{others[0]}` on {spec.stack.name}",
            f"leave `ipo` out of the list, or write `target {able(lambda one: not one.facts.ipo_averages_all)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP487", "losses-of-flattened-pairs")
def flattened(spec: Spec) -> Iterator[Finding]:
    """Flattened pairs are one row, and some losses of dpo count words or answers row by row.

    `ipo` divides by the words of the whole micro-batch; `sft` and `rpo`, which are the likelihood of the chosen answer,
    take in the rejected one as well. Today, silently. `use_weighting` ends with a RuntimeError in the first step.
    Source: trl 0.18 and 0.24 `dpo_trainer.py` `concatenated_forward`; executed.
    """
    if not spec.flag("batch.padding_free") or not spec.stack.facts.dpo_padding_free:
        return
    named = [one for one in spec.losses if one in ("ipo", "sft")]
    if named:
        place, what = spec.place("method.loss"), f"`{named[0]}`"
    elif spec.get("method.rpo"):
        place, what = spec.place("method.rpo"), "`rpo`"
    elif spec.extra_value("trl", "use_weighting") is True:
        place, what = spec.extra_place("trl", "use_weighting"), "`use_weighting`"
    else:
        return
    yield Finding(
        place,
        f"{what} of flattened pairs on {spec.stack.name}",
        "leave `padding_free` out",
        (spec.label("batch.padding_free", "all pairs of a micro-batch in one row"),),
    )
