"""Checkpoints that contain only weights. If a run is stopped, it saves a complete checkpoint, because training cannot
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
        """Save the complete state, not only weights, if a stop request is the reason for this checkpoint."""
        stated = self.args.save_only_model
        self.args.save_only_model = stated and not self.stopping
        try:
            super().save_checkpoint(write)
        finally:
            self.args.save_only_model = stated


class WeightsOnly(Feature):
    """Hooks for a run whose checkpoints contain only weights."""

    def no_checkpoint_found(self, bundle: Bundle, folder: str) -> None:
        """Raise RunError if a folder has checkpoints with only weights: a run that starts at the first step would
        replace them.
        """
        if any(weights_complete(path) for _, path in steps(folder)):
            raise RunError(
                f"{folder} has checkpoints of weights only, from which training cannot resume; "
                "name another output folder, or empty it to start from the beginning"
            )
