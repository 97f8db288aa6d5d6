"""`nan = allow`: continue training after a loss that is not finite."""

from ...core.errors import say
from ...core.fault_tolerance import FaultTolerant


class NanLossTrainer(FaultTolerant):
    """Trainer methods for a run with `nan = allow`."""

    reported = False

    def loss_not_finite(self, word: str, step: int) -> None:
        """Report once that a loss was not finite."""
        if not self.reported:
            say(f"the loss is {word} at step {step}; training continues because of `nan = allow` (reported once)")
            self.reported = True
