"""Checkpoints of weights only: training can resume only from the one that a stopped run saves, which is complete."""

from collections.abc import Callable

from ...core.checkpoints import steps
from ...core.errors import RunError
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Bundle, Feature
from .transformers_checkpoints import weights_complete


class WeightsOnlyTrainer(FaultTolerant):
    """Trainer methods of such a run."""

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """Save the complete state in a checkpoint that is written because of a stop request."""
        stated = self.args.save_only_model
        self.args.save_only_model = stated and not self.stopping
        try:
            super().save_checkpoint(write)
        finally:
            self.args.save_only_model = stated


class WeightsOnly(Feature):
    """Checkpoints of weights only."""

    def no_checkpoint_found(self, bundle: Bundle, folder: str) -> None:
        """Raises RunError when a folder has checkpoints of weights only: a new run would replace them."""
        if any(weights_complete(path) for _, path in steps(folder)):
            raise RunError(
                f"{folder} has checkpoints of weights only, from which training cannot resume; "
                "name another output folder, or empty it to start from the beginning"
            )
