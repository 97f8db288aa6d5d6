"""Filter a deprecation warning about a call inside trl 1.16 and peft, which users cannot change."""

import warnings

from ...core.feature import Bundle, Feature


class CheckpointingWarning(Feature):
    """The feature that filters a warning about gradient checkpointing."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Filter the warning. trl 1.16 and peft use the deprecated name for generation, references and adapters."""
        warnings.filterwarnings("ignore", category=FutureWarning, message="`is_gradient_checkpointing` is deprecated")
