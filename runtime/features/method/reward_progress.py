"""Rewards in the progress line of a run."""

from collections.abc import Mapping
from typing import Any

from ...core.feature import Bundle, Feature

SHOWN = {"reward": "reward", "rewards/margins": "margin"}
"""Metrics and their names in the line: the reward of GRPO and RLOO, the margin of preference methods."""


class RewardProgress(Feature):
    """Rewards and margins in the progress line."""

    def log_words(self, bundle: Bundle, event: Mapping[str, Any]) -> list[str]:
        """The rewards and margins of the event."""
        return [f"{word} {event[key]:.3f}" for key, word in SHOWN.items() if key in event]
