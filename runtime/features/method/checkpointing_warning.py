"""A warning that says nothing to the reader of a run: of how trl 1.16 and peft ask a model whether it recomputes."""

import warnings

from ...core.feature import Bundle, Feature


class CheckpointingWarning(Feature):
    """A warning about gradient checkpointing that concerns no user."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """trl 1.16 and peft ask a model by the older name, at generations, references and adapters."""
        warnings.filterwarnings("ignore", category=FutureWarning, message="`is_gradient_checkpointing` is deprecated")
