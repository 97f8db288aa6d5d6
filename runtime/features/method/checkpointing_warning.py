"""Filter a deprecation warning about a call inside trl 1.16 and peft, which users cannot change."""

import warnings

from ...core.feature import Bundle, Feature


class CheckpointingWarning(Feature):
    """A warning about gradient checkpointing that does not concern users."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """trl 1.16 and peft use the deprecated name for generation, references and adapters."""
        warnings.filterwarnings("ignore", category=FutureWarning, message="`is_gradient_checkpointing` is deprecated")
