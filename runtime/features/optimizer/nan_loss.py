"""`nan = allow`: a run trains on after a loss that is no number."""

from ...core.errors import say
from ...core.fault_tolerance import FaultTolerant


class NanLossTrainer(FaultTolerant):
    """What the trainer of such a run gets."""

    told_of_nan = False

    def no_number(self, word: str, step: int) -> None:
        """Says so once."""
        if not self.told_of_nan:
            say(f"the loss is {word} at step {step}; training goes on, as `nan = allow` says (told once)")
            self.told_of_nan = True
