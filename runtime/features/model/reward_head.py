"""A reward model: the base weights with a new score head. The head is initialized from the seed of the run."""

import logging
import re

from ...core.feature import Bundle, Feature, ModelClass, Rows
from ...core.token_counts import TokenCounts

SCORES = {"score.weight", "lm_head.weight"}
"""Names of weights that transformers may report as missing from a checkpoint: the score head of a reward model, and the
head of a language model."""
PADDING = "Please note that with a fast tokenizer, using the `__call__` method is faster"
"""The beginning of a warning of transformers 4.52 about trl's RewardTrainer, whose collator pads tokenized rows."""


class RewardHead(Feature):
    """Hooks for a run that trains a reward model with its score head."""

    def model_class(self, bundle: Bundle, kind: ModelClass) -> ModelClass:
        """The class that loads the model: the one for sequence classification, because it has a score head."""
        from transformers import AutoModelForSequenceClassification

        loader: ModelClass = AutoModelForSequenceClassification
        return loader

    def model_options(self, bundle: Bundle, options: dict[str, object]) -> None:
        """Make the model return one score per sequence. Filter transformers' report about the new score head."""
        from transformers import AutoConfig

        filter_log_messages()
        options["config"] = AutoConfig.from_pretrained(bundle.model_path, **bundle.loading(), num_labels=1)

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: Rows) -> None:
        """Count rows longer than `seq` as dropped, not as truncated, because the reward trainer drops them."""
        counted.cut_rows = counted.cut_tokens = 0
        counted.left_out_for, counted.lacks = "they are longer than seq", "fits"


def filter_log_messages() -> None:
    """Filter the harmless messages about padding and about the new score head."""
    tokenizing = logging.getLogger("transformers.tokenization_utils_base")
    tokenizing.addFilter(lambda record: PADDING not in record.getMessage())
    logging.getLogger("transformers.modeling_utils").addFilter(lambda record: not only_scores(record.getMessage()))


def only_scores(message: str) -> bool:
    """Whether a message is transformers' report about the new score head and no other weight.

    transformers 4.52 lists names in brackets, 5.23 in the first column of a table.
    """
    if "ForSequenceClassification" not in message:
        return False
    listed = re.search(r"newly initialized: \[(.*)\]", message)
    if listed:
        names = {one.strip(" '") for one in listed.group(1).split(",")}
    else:
        names = {one.strip() for one in re.findall(r"^([^|\n]+)\|", message, re.MULTILINE)} - {"Key"}
    return bool(names) and names <= SCORES
