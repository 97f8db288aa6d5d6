"""Liger's function for a model that is loaded already; the public ones change the classes of a family."""

from typing import Any


def put_into(model: Any) -> None:
    """Layer kernels (norm, rope, gated MLP), and none of the loss."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False, cross_entropy=False)
