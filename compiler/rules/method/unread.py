"""The rule about settings that only another loss, or another setting, makes the trainer read (XP613)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.schema import path_of
from xpc.compiler.rules.core.conditions import any_of, extra, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.method.ratios import RANGES, TWO_SIDED
from xpc.compiler.spec import Spec

WHEN = any_of(extra("trl"), written("method.epsilon", "method.epsilon_high", "method.delta"))

READERS = {
    "epsilon": TWO_SIDED, "epsilon_high": (*TWO_SIDED, "cispo"), "delta": TWO_SIDED,
    "sapo_temperature_pos": ("sapo",), "sapo_temperature_neg": ("sapo",),
    "vespo_k_pos": ("vespo",), "vespo_k_neg": ("vespo",), "vespo_lambda_pos": ("vespo",),
    "vespo_lambda_neg": ("vespo",), "discopop_tau": ("discopop",),
}  # fmt: skip
"""Maps a setting, or an argument in `extra trl`, to the losses that read it."""
COEFFICIENT = "f_alpha_divergence_coef"


@rule("XP613", "setting-of-another-loss", "warning", reads=RANGES)
def of_another_loss(spec: Spec) -> Iterator[Finding]:
    """A setting of some losses should be used with one of these losses. Of grpo's losses, cispo reads only
    `epsilon_high`, sapo and vespo read neither this nor `epsilon` and `delta`, and only these two read the arguments
    that begin with their name. `discopop_tau` belongs to dpo's loss discopop, `f_alpha_divergence_coef` to
    `f_divergence_type = alpha_divergence`. `multi_objective_aggregation = normalize_then_sum` always divides by the
    standard deviations, so it does not read `scale_rewards`.

    Why it is bad: the run does not do what the setting says.

    Without this rule: nothing is reported.

    Source: trl 1.16 `grpo_trainer.py` (`_compute_loss`, `_generate_and_score_completions`); trl 1.16, 0.24 and 0.18
    `dpo_trainer.py`; confirmed by running it: the losses with and without the setting are equal.
    """
    for name, readers in READERS.items() if spec.losses else ():
        path = path_of(f"method.{name}") if f"method.{name}" in RANGES else None
        stated = spec.extra_value("trl", name) is not None if path is None else spec.written(path)
        if stated and set(spec.losses).isdisjoint(readers):
            text = f"read by {', '.join(readers)}"
            yield Finding(
                spec.extra_location("trl", name, text) if path is None else spec.location(path, text),
                f"`{name}` does nothing: the loss `{spec.losses[0]}` does not read it",
                f"leave `{name}` out, or write `loss = {readers[0]}`",
                (spec.label("method.loss", "the loss"),),
            )
    divergence = spec.extra_value("trl", "f_divergence_type") or "reverse_kl"
    if spec.extra_value("trl", COEFFICIENT) is not None and divergence != "alpha_divergence":
        yield Finding(
            spec.extra_location("trl", COEFFICIENT, "read by alpha_divergence"),
            f"`{COEFFICIENT}` does nothing: the divergence is `{str(divergence)[:40]}`",
            f"write `f_divergence_type = alpha_divergence`, or leave `{COEFFICIENT}` out",
        )
    each = spec.extra_value("trl", "multi_objective_aggregation") == "normalize_then_sum"
    if each and spec.get("method.scale_rewards") in ("none", "batch"):
        yield Finding(
            spec.location("method.scale_rewards", "not read"),
            "`scale_rewards` does nothing: `normalize_then_sum` divides by standard deviations all the same",
            "leave `scale_rewards` out, or write `multi_objective_aggregation = sum_then_normalize`",
        )
