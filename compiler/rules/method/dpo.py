"""Rules about settings of dpo with which TRL's trainers before version 1.0 compute a wrong loss (XP486, XP487)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = chosen("method", "dpo")


@rule("XP486", "ipo-averages-the-others")
def ipo_with_others(spec: Spec) -> Iterator[Finding]:
    """`ipo` cannot be combined with other dpo losses on trl 0.24.

    Why it is bad: `ipo` uses means over the tokens of an answer and the other losses use sums, but if `ipo` is one of
    several losses, trl 0.24 passes means to all of them.

    Without this rule: nothing is reported, and in a sigmoid loss the differences of log-probabilities are divided by
    the answer's length in tokens. trl 1.16 computes each loss separately.

    Source: trl 0.24 `dpo_trainer.py` `concatenated_forward` (`if "ipo" in self.loss_type`); confirmed by running it.
    """
    losses = spec.losses
    others = [one for one in losses if one not in ("ipo", "sft")]
    if spec.stack.facts.ipo_averages_all and "ipo" in losses and others:
        yield Finding(
            spec.location("method.loss", f"`{others[0]}` would get mean log-probabilities instead of sums"),
            f"`ipo` cannot be combined with `{others[0]}` on {spec.stack.name}",
            f"leave `ipo` out of the list, or write `target {able(lambda one: not one.facts.ipo_averages_all)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP487", "losses-of-flattened-pairs")
def flattened(spec: Spec) -> Iterator[Finding]:
    """`padding_free` cannot be combined with dpo losses that count tokens or answers per row: `ipo`, `sft`, `rpo` and
    `use_weighting`.

    Why it is bad: flattening puts all pairs of a micro-batch into one row, so the counts of single rows are lost.

    Without this rule: `use_weighting` raises RuntimeError in the first step. The other losses are silently wrong: `ipo`
    divides by the number of tokens in the complete micro-batch. `sft` and `rpo` should be the likelihood of the chosen
    answer, but include the rejected answer.

    Source: trl 0.18 and 0.24 `dpo_trainer.py` `concatenated_forward`; confirmed by running it.
    """
    if not spec.flag("batch.padding_free") or not spec.stack.facts.dpo_padding_free:
        return
    named = [one for one in spec.losses if one in ("ipo", "sft")]
    if named:
        location, what = spec.location("method.loss"), f"`{named[0]}`"
    elif spec.get("method.rpo"):
        location, what = spec.location("method.rpo"), "`rpo`"
    elif spec.extra_value("trl", "use_weighting") is True:
        location, what = spec.extra_location("trl", "use_weighting"), "`use_weighting`"
    else:
        return
    yield Finding(
        location,
        f"{what} is computed wrongly for flattened pairs on {spec.stack.name}",
        "leave `padding_free` out",
        (spec.label("batch.padding_free", "all pairs of a micro-batch in one row"),),
    )
