"""Filter warnings about gradient checkpointing. Calls inside the libraries cause them, so users cannot avoid them."""

import logging
import warnings

from ...core.feature import Bundle, Feature

CACHE = "`use_cache=True` is incompatible with gradient checkpointing"


class CheckpointingWarning(Feature):
    """Hooks that filter warnings about gradient checkpointing."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Filter two kinds of warnings.

        trl 1.16 and peft call methods of models by deprecated names. transformers 4.52 warns that a model with gradient
        checkpointing has no cache of keys and values; training needs no such cache. Each module of a model has its own
        logger, so the second filter is on the handlers of the library's logger.
        """
        names = "`(is_gradient_checkpointing|gradient_checkpointing_(en|dis)able)` is deprecated"
        warnings.filterwarnings("ignore", category=FutureWarning, message=names)
        for handler in logging.getLogger("transformers").handlers:
            handler.addFilter(lambda record: CACHE not in str(record.msg))
