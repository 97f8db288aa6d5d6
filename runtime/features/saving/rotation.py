"""Delete old checkpoints."""

import os
from collections.abc import Callable

from ...core import checkpoints
from ...core.checkpoint_integrity import clear, staging
from ...core.errors import rank
from ...core.fault_tolerance import FaultTolerant


class RotatingTrainer(FaultTolerant):
    """Trainer methods for a run with `save.keep`."""

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """Write a checkpoint. Then delete complete checkpoints, except the best one and the newest ones (`save.keep`).

        Also delete unusable checkpoints.
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
    """Delete a checkpoint. Its folder is renamed first, so that no partial checkpoint has a checkpoint's name."""
    folder, name = os.path.split(path)
    os.makedirs(staging(folder), exist_ok=True)
    os.rename(path, os.path.join(staging(folder), name))
    clear(folder)
