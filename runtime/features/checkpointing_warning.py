"""A warning that says nothing to the reader of a run: of how trl 1.16 and peft ask a model whether it recomputes."""

import warnings

from ..core.bundle import Bundle


def deprecations(bundle: Bundle) -> None:
    """By the older name, around generations and references and at adapters. transformers and trl set filters before."""
    warnings.filterwarnings("ignore", category=FutureWarning, message="`is_gradient_checkpointing` is deprecated")
