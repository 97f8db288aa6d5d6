"""Rewards in the progress line of a run."""

from collections.abc import Mapping
from math import isnan

from ...core.feature import Bundle, Feature

SHOWN = {"reward": "reward", "rewards/margins": "margin", "accuracy": "accuracy"}
"""Maps metrics to their short names in the progress line: `reward` for GRPO and RLOO, `margin` for preference methods,
`accuracy` for reward models."""


class RewardProgress(Feature):
    """Hooks that show rewards and margins in the progress line."""

    def log_words(self, bundle: Bundle, event: Mapping[str, object]) -> list[str]:
        """The rewards and margins of the event. `none` means that no completion had a reward since the last log."""
        return [f"{word} {_number(event[key])}" for key, word in SHOWN.items() if key in event]


def _number(value: object) -> str:
    """The value with three decimals. "none" for nan and None: trl logs these if every reward function returned None."""
    return f"{value:.3f}" if isinstance(value, float) and not isnan(value) else "none"
