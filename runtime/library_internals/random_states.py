"""transformers' random states, for a run that resumes with more processes (4.52 to 5.23, trainer.py)."""

import os
from glob import escape as glob_escape
from glob import glob
from tempfile import TemporaryDirectory
from typing import Any


class RandomStatesTrainer:
    """A base class before trl's trainer in the class order (MRO). It overrides how random states are loaded."""

    args: Any

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load random states. If the run began with fewer processes, this process may load another process's states."""
        single, rank = self.args.world_size == 1, self.args.process_index
        name = "rng_state.pth" if single else f"rng_state_{rank}.pth"
        files = sorted(glob(os.path.join(glob_escape(checkpoint), "rng_state*.pth"))) if checkpoint else []
        if not files or os.path.join(str(checkpoint), name) in files:
            super()._load_rng_state(checkpoint)  # type: ignore[misc]
            return
        with TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(files[rank % len(files)]), os.path.join(folder, name))
            super()._load_rng_state(folder)  # type: ignore[misc]
