"""A warning that says nothing to the reader of a run: of how trl 1.16 asks a model whether it recomputes."""

import warnings

from ..core.bundle import Bundle


def deprecations(bundle: Bundle) -> None:
    """By the older name, around each generation and reference. transformers and trl, imported by now, set filters."""
    warnings.filterwarnings("ignore", category=FutureWarning, message="`is_gradient_checkpointing` is deprecated")
