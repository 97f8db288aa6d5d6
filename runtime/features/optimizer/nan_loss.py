"""`nan = allow`: a run trains on after a loss that is no number."""

from ...core.errors import say
from ...core.fault_tolerance import FaultTolerant


class NanLossTrainer(FaultTolerant):
    """What the trainer of such a run gets."""

    reported = False

    def loss_not_finite(self, word: str, step: int) -> None:
        """Says so once."""
        if not self.reported:
            say(f"the loss is {word} at step {step}; training goes on, as `nan = allow` says (told once)")
            self.reported = True
