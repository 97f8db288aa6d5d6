"""Filter warnings about gradient checkpointing that come from calls inside the libraries, which users cannot change."""

import logging
import warnings

from ...core.feature import Bundle, Feature

CACHE = "`use_cache=True` is incompatible with gradient checkpointing"


class CheckpointingWarning(Feature):
    """Hooks that filter warnings about gradient checkpointing."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Filter the warnings.

        trl 1.16 and peft use deprecated names for generation, references and adapters. transformers 4.52 says that a
        checkpointed model keeps no cache of keys and values, which training never reads; each model has a logger of its
        own, so the filter is on the handlers of the library.
        """
        names = "`(is_gradient_checkpointing|gradient_checkpointing_(en|dis)able)` is deprecated"
        warnings.filterwarnings("ignore", category=FutureWarning, message=names)
        for handler in logging.getLogger("transformers").handlers:
            handler.addFilter(lambda record: CACHE not in str(record.msg))
