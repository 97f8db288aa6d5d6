"""What the progress line of a run with rewards tells beside the loss."""

from collections.abc import Mapping
from typing import Any

from ...core.feature import Bundle, Feature

SHOWN = {"reward": "reward", "rewards/margins": "margin"}
"""GRPO's and RLOO's reward, the margin of preference methods."""


class RewardProgress(Feature):
    """Rewards and margins in the progress line."""

    def log_words(self, bundle: Bundle, event: Mapping[str, Any]) -> list[str]:
        """Its words."""
        return [f"{word} {event[key]:.3f}" for key, word in SHOWN.items() if key in event]
