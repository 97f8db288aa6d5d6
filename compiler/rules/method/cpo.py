"""Rules about contrastive preference optimization and SimPO (XP155, XP156)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("method", "cpo")


def _simpo(spec: Spec) -> bool:
    return "simpo" in spec.losses


@rule("XP155", "margin-without-simpo", "warning")
def margin(spec: Spec) -> Iterator[Finding]:
    """`margin`, the difference that SimPO demands between the scores of the two answers, needs `loss = simpo`.

    Why it is bad: cpo's losses other than simpo have no margin, so `margin` has no effect. If the spec states the
    default value, this rule reports nothing.

    Without this rule: the trainer silently ignores `simpo_gamma`, TRL's argument for `margin`.

    Source: trl 1.16, 0.24 and 0.18 `cpo_trainer.py` (`cpo_loss`); confirmed by running it.
    """
    default = spec.fields()["simpo_gamma"].effective
    if spec.written("method.margin") and not _simpo(spec) and spec.get("method.margin") != default:
        yield Finding(
            spec.location("method.margin", "not read"),
            f"`margin` has no effect with `loss = {next(iter(spec.losses), 'sigmoid')}`",
            "write `loss = simpo`, or leave `margin` out",
        )


@rule("XP156", "simpo-with-likelihood", "note")
def likelihood(spec: Spec) -> Iterator[Finding]:
    """A spec with `loss = simpo` should set `likelihood`. By default, TRL adds the likelihood of the chosen answer to
    the loss, with a weight of 1 (CPO-SimPO). SimPO as published has no such term.

    Why it is bad: the run is not comparable with published SimPO runs.

    Without this rule: the loss silently contains SimPO's term and the likelihood term.

    Source: Meng et al. 2024 (SimPO, arXiv:2405.14734), equation 6; trl 1.16 `cpo_config.py` (`cpo_alpha`).
    """
    if _simpo(spec) and not spec.written("method.likelihood"):
        yield Finding(
            spec.location("method.loss", "adds the likelihood of the chosen answer"),
            "`loss = simpo` also learns the likelihood of the chosen answer",
            "write `likelihood = 0` for SimPO as published, or `likelihood = 1` to learn the likelihood, too",
        )
