"""Save the averaged weights of a schedule-free optimizer, not the weights at which it computes gradients."""

from typing import Any

from ...core.fault_tolerance import FaultTolerant


class ScheduleFreeTrainer(FaultTolerant):
    """Trainer methods for a run with a schedule-free optimizer."""

    optimizer: Any

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Let the optimizer put its averaged weights into the model, and save them. transformers itself does this only
        for evaluations.

        The next training step puts the training weights back.
        """
        if self.optimizer is not None:
            self.optimizer.eval()
        super().save_model(*args, **kwargs)
