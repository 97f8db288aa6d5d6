"""`torch_compile` of each layer on its own."""

import os
from typing import Any

from ...core.feature import Bundle, Feature


class CompiledLayers(Feature):
    """`torch_compile` of each layer on its own."""

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Tells accelerate so (accelerate 1.15, TorchDynamoPlugin)."""
        os.environ["ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"] = "true"
