"""Filter transformers' warning about weights that a checkpoint lacks only because they are tied to weights that it has.
With DeepSpeed, transformers does not warn.
"""

import logging
import re

from ...core.feature import Bundle, Feature, Trainer


class TiedWeights(Feature):
    """Hooks for a model with tied weights: the checkpoint contains such a weight once, and the model uses it twice."""

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Filter transformers' warning about missing weights that are tied to a weight in the checkpoint."""
        places: dict[int, list[str]] = {}
        for name, weight in trainer.model.state_dict().items():
            if weight.numel():  # a weight that ZeRO-3 has sharded has no elements here
                places.setdefault(weight.data_ptr(), []).append(name)
        tied = {name for names in places.values() if len(names) > 1 for name in names}

        def only_tied(message: str) -> bool:
            listed = re.search(r"missing keys in the checkpoint model loaded: \[(.*)\]", message)
            return listed is not None and {one.strip(" '") for one in listed[1].split(",")} <= tied

        logging.getLogger("transformers.trainer").addFilter(lambda record: not only_tied(record.getMessage()))
