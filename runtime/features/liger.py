"""Liger's kernels in the layers of the model."""

from typing import Any

from ..core.bundle import Bundle
from ..library_internals import liger_kernels


def model_loaded(bundle: Bundle, model: Any, tokenizer: Any) -> None:
    """Liger's layer kernels (norm, rope, gated MLP) put into the loaded model; trl 1.16 has a fused loss of its own."""
    liger_kernels.put_into(model)
