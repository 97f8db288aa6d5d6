"""Checkpoints of weights only, which training cannot go on from, but for the one that a stopped run leaves."""

from collections.abc import Callable

from ...core.checkpoints import steps
from ...core.errors import RunError
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Bundle, Feature
from .transformers_checkpoints import weights_complete


class WeightsOnlyTrainer(FaultTolerant):
    """What the trainer of such a run gets."""

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """A checkpoint that is saved because the run must stop holds all that training goes on from."""
        stated = self.args.save_only_model
        self.args.save_only_model = stated and not self.stopping
        try:
            super().save_checkpoint(write)
        finally:
            self.args.save_only_model = stated


class WeightsOnly(Feature):
    """Checkpoints of weights only."""

    def no_checkpoint_found(self, bundle: Bundle, folder: str) -> None:
        """Raises RunError where a folder holds checkpoints that training cannot go on from: they would be replaced."""
        if any(weights_complete(path) for _, path in steps(folder)):
            raise RunError(
                f"{folder} holds checkpoints of weights only, which training cannot go on from; "
                "name another output folder, or empty it to train anew"
            )
