"""The schedule `wsd` with a decay that is stated as a share of the run. The number of decay steps is known only after
the rows are read.
"""

from typing import Any

from ...core.fault_tolerance import FaultTolerant


class DecayShareTrainer(FaultTolerant):
    """Trainer methods for a run whose final decay is stated as a share, such as 0.1."""

    args: Any

    def create_scheduler(self, num_training_steps: int, *args: Any, **kwargs: object) -> object:
        """Create transformers' schedule with the decay in steps. The trainer's arguments still contain the share."""
        stated = self.args.lr_scheduler_kwargs
        decay = int(stated["num_decay_steps"] * num_training_steps)
        self.args.lr_scheduler_kwargs = {**stated, "num_decay_steps": decay}
        try:
            return super().create_scheduler(num_training_steps, *args, **kwargs)  # type: ignore[misc]
        finally:
            self.args.lr_scheduler_kwargs = stated
