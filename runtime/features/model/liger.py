"""Apply Liger's kernels to the layers of the model."""

from typing import Any

from ...core.feature import Bundle, Feature
from ...library_internals import liger_kernels


class Liger(Feature):
    """Hooks for a run with Liger's kernels in the layers of the model."""

    def model_loaded(self, bundle: Bundle, model: Any, tokenizer: Any) -> None:
        """Apply Liger's layer kernels (norm, rope, gated MLP) to the model. Liger's fused loss is not used, because trl
        1.16 has its own.
        """
        liger_kernels.put_into(model)
