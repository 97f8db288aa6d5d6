"""Save the averaged weights of a schedule-free optimizer, not the ones that it takes gradients at."""

from typing import Any

from ...core.fault_tolerance import FaultTolerant


class ScheduleFreeTrainer(FaultTolerant):
    """Trainer methods for a run with a schedule-free optimizer."""

    optimizer: Any

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Let the optimizer put its averages into the weights, and save; transformers does so only to evaluate.

        The next training step puts the training weights back.
        """
        if self.optimizer is not None:
            self.optimizer.eval()
        super().save_model(*args, **kwargs)
