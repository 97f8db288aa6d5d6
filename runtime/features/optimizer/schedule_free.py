"""Save the averaged weights of a schedule-free optimizer. The weights for which it computes gradients are not saved."""

from typing import Any

from ...core.fault_tolerance import FaultTolerant


class ScheduleFreeTrainer(FaultTolerant):
    """Trainer methods for a run with a schedule-free optimizer."""

    optimizer: Any

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Let the optimizer put its averaged weights into the model, and save. transformers does this only for an
        evaluation.

        The next training step puts the training weights back.
        """
        if self.optimizer is not None:
            self.optimizer.eval()
        super().save_model(*args, **kwargs)
