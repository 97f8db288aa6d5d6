"""Call Liger's private function for a loaded model, because its public functions change the classes of a family."""

from typing import Any


def put_into(model: Any) -> None:
    """Apply Liger's layer kernels (norm, rope, gated MLP) to the model, but not its loss kernels."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False, cross_entropy=False)
