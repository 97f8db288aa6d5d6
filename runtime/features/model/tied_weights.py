"""transformers' warning of weights that a checkpoint need not hold; DeepSpeed loads its checkpoints by itself."""

import logging
import re
from typing import Any

from ...core.feature import Bundle, Feature


class TiedWeights(Feature):
    """Weights that a checkpoint holds once and the model uses twice."""

    def before_training(self, bundle: Bundle, trainer: Any) -> None:
        """Leaves out transformers' warning that a checkpoint lacks weights which are one with a weight that it has."""
        places: dict[int, list[str]] = {}
        for name, weight in trainer.model.state_dict().items():
            if weight.numel():  # a share of ZeRO-3 has none
                places.setdefault(weight.data_ptr(), []).append(name)
        tied = {name for names in places.values() if len(names) > 1 for name in names}

        def only_tied(message: str) -> bool:
            listed = re.search(r"missing keys in the checkpoint model loaded: \[(.*)\]", message)
            return listed is not None and {one.strip(" '") for one in listed[1].split(",")} <= tied

        logging.getLogger("transformers.trainer").addFilter(lambda record: not only_tied(record.getMessage()))
