"""The private method of transformers' Trainer that reads the weights of a checkpoint (4.52 to 5.23, trainer.py)."""

from collections.abc import Callable


class LoadingHook:
    """A base class before trl's trainer in the class order (MRO). It lets subclasses override how a checkpoint's
    weights are loaded (``load_checkpoint``).
    """

    def load_checkpoint(self, load: Callable[[], None]) -> None:
        """Call ``load``, which loads the weights of a checkpoint as transformers does. Subclasses extend this."""
        load()

    def _load_from_checkpoint(self, *args: object, **kwargs: object) -> None:
        load = super()._load_from_checkpoint  # type: ignore[misc]
        self.load_checkpoint(lambda: load(*args, **kwargs))
