"""Early stopping: the run ends after `patience` evaluations in a row without improvement."""

from collections.abc import Callable
from typing import Any

from ...core.feature import Bundle, Feature, Model


class EarlyStopping(Feature):
    """Early stopping by the metric that chooses the best checkpoint."""

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Add the callback that ends the run after `patience` evaluations without improvement."""
        from .stop_callback import StopCallback  # imported only here, because it imports transformers

        options["callbacks"] = [StopCallback(bundle.run["patience"]), *options["callbacks"]]
