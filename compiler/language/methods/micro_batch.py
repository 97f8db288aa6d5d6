"""Losses that are partly averaged over a micro-batch, so that the micro-batch size changes what is learned."""

from __future__ import annotations

from collections.abc import Collection

OF_DPO = {"aot", "aot_pair", "aot_unpaired", "bco_pair", "sft"}
"""dpo's losses that depend on the whole micro-batch, and not only on each pair (trl 0.18 to 1.16, dpo_trainer.py)."""
OF_GRPO = {"bnpo"}
"""grpo's losses that average over the tokens of a micro-batch (trl 0.18 to 1.16, grpo_trainer.py)."""


def means_over_micro_batch(method: str, losses: Collection[str], likelihood: object, router: object) -> bool:
    """Whether a part of the loss is a mean over each micro-batch instead of over the step.

    Such parts are the likelihood term (of orpo; of dpo and cpo if its weight `likelihood` is not 0), the router loss if
    its weight `router` is not 0, and the losses in `OF_DPO` and `OF_GRPO`.
    """
    named = {"dpo": OF_DPO, "grpo": OF_GRPO}.get(method, set())
    return method == "orpo" or bool(likelihood or router) or not named.isdisjoint(losses)
