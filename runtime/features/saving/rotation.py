"""Only so many checkpoints are kept."""

import os
from collections.abc import Callable

from ...core import checkpoints
from ...core.checkpoint_integrity import clear, move_aside
from ...core.errors import rank
from ...core.fault_tolerance import FaultTolerant


class RotatingTrainer(FaultTolerant):
    """What the trainer of a run with `save.keep` gets."""

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """Writes it; deletes all but the newest `save.keep` checkpoints that are whole, and the best.

        What could not be gone on from counts for nothing, and goes.
        """
        super().save_checkpoint(write)
        if rank() != 0:
            return
        limit, best = self.args.save_total_limit, os.path.basename(self.state.best_model_checkpoint or "")
        kept = {f"checkpoint-{step}" for step in self.saved[-limit:]} | {best}
        for _, path in checkpoints.steps(os.path.abspath(self.args.output_dir)):
            if os.path.basename(path) not in kept:
                remove(path)
        self.saved = [step for step in self.saved if f"checkpoint-{step}" in kept]


def remove(path: str) -> None:
    """Deletes a checkpoint: first its name, then its files, so that half of one never carries the name."""
    move_aside(path)
    clear(os.path.dirname(path))
