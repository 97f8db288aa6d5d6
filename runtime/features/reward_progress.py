"""What the progress line of a run with rewards tells beside the loss."""

from collections.abc import Mapping
from typing import Any

from ..core.bundle import Bundle

SHOWN = {"reward": "reward", "rewards/margins": "margin"}
"""GRPO's and RLOO's reward, the margin of preference methods."""


def progress(bundle: Bundle, event: Mapping[str, Any]) -> list[str]:
    """Its words."""
    return [f"{word} {event[key]:.3f}" for key, word in SHOWN.items() if key in event]
