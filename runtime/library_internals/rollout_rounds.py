"""Store completions in a checkpoint if later steps train on them, because trl generates for several steps at once."""

import os
from typing import Any


class RolloutRoundsTrainer:
    """A base class before trl's trainer in the class order (MRO). It saves and restores completions with a checkpoint.

    Several steps train on the completions of one round if `iterations` is above 1, or `steps_per_generation` above the
    accumulation. trl saves neither the completions nor its place in the round. So a run that resumes within a round
    would generate new completions and train on them for a complete round.
    """

    args: Any
    _step: int
    _buffered_inputs: object

    def _save_rng_state(self, output_dir: str) -> None:
        import torch

        super()._save_rng_state(output_dir)  # type: ignore[misc]
        if self._step % (self.args.steps_per_generation * self.args.num_iterations):
            torch.save({"step": self._step, "completions": self._buffered_inputs}, rollouts(output_dir, self.args))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        import torch

        super()._load_rng_state(checkpoint)  # type: ignore[misc]
        if checkpoint is not None and os.path.exists(rollouts(checkpoint, self.args)):
            saved = torch.load(rollouts(checkpoint, self.args), map_location=self.args.device, weights_only=True)
            self._step, self._buffered_inputs = saved["step"], saved["completions"]


def rollouts(checkpoint: str, args: Any) -> str:
    """The path of this process's file with completions in a checkpoint folder."""
    return os.path.join(checkpoint, f"rollouts_{args.process_index}.pt")
