"""Restore the epoch number that accelerate before 1.12 loses when a run resumes."""

from ..core.feature import Bundle, Feature


class EpochOrder(Feature):
    """Hooks for a run that resumes within an epoch: the rest of this epoch keeps its order of rows."""

    def before_training(self, bundle: Bundle, _: object) -> None:
        """If a run resumes within an epoch, let the rest of this epoch keep its order of rows.

        For the rest of the epoch, accelerate before 1.12 creates a loader with epoch number 0, which shuffles as in the
        first epoch (data_loader.py, ``skip_first_batches``: no ``iteration``). Later versions pass the number on.
        """
        from transformers import trainer

        skip = trainer.skip_first_batches

        def skipped(loader: object, num_batches: int = 0) -> object:
            made = skip(loader, num_batches)
            if hasattr(loader, "iteration"):
                made.iteration = loader.iteration
            return made

        trainer.skip_first_batches = skipped
