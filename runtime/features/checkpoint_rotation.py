"""Only so many checkpoints are kept."""

from __future__ import annotations

import os

from ..core import checkpoint_integrity, checkpoints
from ..core.fault_tolerance import FaultTolerant


class Rotating(FaultTolerant):
    """What the trainer of a run with `save.keep` gets."""

    def rotate(self) -> None:
        """Deletes all but the newest `save.keep` checkpoints that are whole, and the best; the new one is whole by now.

        What could not be gone on from counts for nothing, and goes.
        """
        limit, best = self.args.save_total_limit, os.path.basename(self.state.best_model_checkpoint or "")
        stay = {f"checkpoint-{step}" for step in self.sound[-limit:]} | {best}
        for _, path in checkpoints.steps(os.path.abspath(self.args.output_dir)):
            if os.path.basename(path) not in stay:
                checkpoint_integrity.remove(path)
        self.sound = [step for step in self.sound if f"checkpoint-{step}" in stay]
