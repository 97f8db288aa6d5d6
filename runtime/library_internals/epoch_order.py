"""accelerate before 1.12 forgets the epoch that a run goes on in."""

from typing import Any

from ..core.feature import Bundle, Feature


class EpochOrder(Feature):
    """The order of rows in the rest of an epoch."""

    def before_training(self, bundle: Bundle, _: Any) -> None:
        """A run that resumes within an epoch gets the rows of that epoch's order.

        accelerate before 1.12 makes a loader for the rest of the epoch that takes itself for the first one, and
        shuffles as that does (data_loader.py, ``skip_first_batches``: no ``iteration``). Later versions hand the number
        on.
        """
        from transformers import trainer

        skip = trainer.skip_first_batches

        def skipped(loader: Any, num_batches: int = 0) -> Any:
            made = skip(loader, num_batches)
            if hasattr(loader, "iteration"):
                made.iteration = loader.iteration
            return made

        trainer.skip_first_batches = skipped
