"""Checkpoints that contain only weights. A run that is stopped saves a complete checkpoint, because training cannot
resume from weights alone.
"""

from collections.abc import Callable

from ...core.checkpoints import steps
from ...core.errors import RunError
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Bundle, Feature
from .transformers_checkpoints import weights_complete


class WeightsOnlyTrainer(FaultTolerant):
    """Trainer methods for a run whose checkpoints contain only weights."""

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """If a stop request is the reason for this checkpoint, save the complete state."""
        stated = self.args.save_only_model
        self.args.save_only_model = stated and not self.stopping
        try:
            super().save_checkpoint(write)
        finally:
            self.args.save_only_model = stated


class WeightsOnly(Feature):
    """Hooks for a run whose checkpoints contain only weights."""

    def no_checkpoint_found(self, bundle: Bundle, folder: str) -> None:
        """Raise RunError if a folder has checkpoints with only weights, because a run from the first step would replace
        these checkpoints.
        """
        if any(weights_complete(path) for _, path in steps(folder)):
            raise RunError(
                f"{folder} has checkpoints of weights only, from which training cannot resume; "
                "name another output folder, or empty it to start from the beginning"
            )
