"""Checkpoints of weights only (`full_state = false`), which training cannot go on from."""

from __future__ import annotations

from ..core.checkpoints import steps
from ..core.errors import RunError
from .plain_checkpoints import weights_whole


def refuse(folder: str) -> None:
    """Raises RunError where an output folder holds such checkpoints: a run would replace them."""
    if any(weights_whole(path) for _, path in steps(folder)):
        raise RunError(
            f"{folder} holds checkpoints of weights only, which training cannot go on from; "
            "name another output folder, or empty it to train anew"
        )
