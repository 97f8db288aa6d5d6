"""Filter deprecation warnings about calls inside trl 1.16 and peft, which users cannot change."""

import warnings

from ...core.feature import Bundle, Feature


class CheckpointingWarning(Feature):
    """Hooks that filter warnings about gradient checkpointing."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Filter the warnings. trl 1.16 and peft use deprecated names for generation, references and adapters."""
        names = "`(is_gradient_checkpointing|gradient_checkpointing_(en|dis)able)` is deprecated"
        warnings.filterwarnings("ignore", category=FutureWarning, message=names)
