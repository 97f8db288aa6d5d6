"""Compile each layer separately with `torch_compile`."""

import os

from ...core.feature import Bundle, Feature


class CompiledLayers(Feature):
    """Hooks for a run that compiles each layer separately with `torch_compile`."""

    def before_arguments(self, bundle: Bundle, values: dict[str, object]) -> None:
        """Set the variable that makes accelerate compile layer by layer (accelerate 1.15, TorchDynamoPlugin)."""
        os.environ["ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"] = "true"
