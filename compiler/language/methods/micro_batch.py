"""Losses that contain a mean over each micro-batch, so that the size of the micro-batch changes what is learned."""

from __future__ import annotations

from collections.abc import Collection

OF_DPO = {"aot", "aot_pair", "aot_unpaired", "bco_pair", "sft"}
"""Losses of dpo. In each of them, the loss of a preference pair depends on the other pairs of the same micro-batch (trl
0.18 to 1.16, dpo_trainer.py).
"""
OF_GRPO = {"bnpo"}
"""Losses of grpo that are a mean over all tokens of a micro-batch (trl 0.18 to 1.16, grpo_trainer.py)."""


def means_over_micro_batch(method: str, losses: Collection[str], likelihood: object, router: object) -> bool:
    """Whether a part of the loss is a mean over each micro-batch, and not over the complete step.

    Three parts of losses are such means: the likelihood term (always in orpo; in dpo and cpo if `likelihood` is not 0),
    the router loss (if `router` is not 0), and the losses in `OF_DPO` and `OF_GRPO`.
    """
    named = {"dpo": OF_DPO, "grpo": OF_GRPO}.get(method, set())
    return method == "orpo" or bool(likelihood or router) or not named.isdisjoint(losses)
