"""The trainer of trl with one thing changed: what it writes down is meant to be loaded and used."""

from __future__ import annotations

from trl import SFTTrainer


class Trainer(SFTTrainer):  # type: ignore[misc]  # trl has no types
    """SFTTrainer whose saved configurations have the key-value cache on; in training it is off.

    Every save goes through ``save_model`` (checkpoints too: Trainer._save_checkpoint, transformers 4.52 and 5.23), so
    a checkpoint that somebody loads to look at generates as fast as the final weights do.
    """

    use_cache_saved = True

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves as trl does."""
        self.model.config.use_cache = self.use_cache_saved
        try:
            super().save_model(output_dir, _internal_call)
        finally:
            self.model.config.use_cache = False
