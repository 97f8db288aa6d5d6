"""Losses of which a part is taken over a micro-batch: its size is then part of what is learned."""

from __future__ import annotations

from collections.abc import Collection

OF_DPO = {"aot", "aot_pair", "aot_unpaired", "bco_pair", "sft"}
"""Losses of dpo that are no mean over pairs (trl 0.18 to 1.16, dpo_trainer.py)."""
OF_GRPO = {"bnpo"}
"""Losses of grpo that are a mean over the tokens of a micro-batch (trl 0.18 to 1.16, grpo_trainer.py)."""


def means_over_micro_batch(method: str, losses: Collection[str], likelihood: object, router: object) -> bool:
    """Whether a part of the loss is a mean over each micro-batch, and not over the step.

    That is orpo's likelihood, dpo's where `likelihood` weighs it (`rpo_alpha`), the loss of a router where `router`
    weighs it, and some losses by their names.
    """
    named = {"dpo": OF_DPO, "grpo": OF_GRPO}.get(method, set())
    return method == "orpo" or bool(likelihood or router) or not named.isdisjoint(losses)
