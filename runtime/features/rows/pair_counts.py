"""Count the tokens of rows with several sequences, under the column names that trl 0.18 to 1.16 use."""

from typing import Any

from ...core.feature import Bundle, Feature
from ...core.token_counts import TokenCounts, lengths_of

PROMPTS = ("prompt_ids", "prompt_input_ids")
ANSWERS = (
    "input_ids", "chosen_ids", "rejected_ids", "completion_ids", "chosen_input_ids", "rejected_input_ids",
    "answer_input_ids", "input_ids_chosen", "input_ids_rejected",
)  # fmt: skip


class PairTokenCounts(TokenCounts):
    """Counts the sequences of a pair: the prompt with the chosen answer, and the prompt with the rejected one."""

    def sequences(self, tokenized: Any) -> list[Any]:
        """For each answer, the lengths of the prompt and this answer together."""
        prompts = [lengths_of(tokenized, name) for name in PROMPTS if name in tokenized.column_names]
        return [sum(prompts, lengths_of(tokenized, name)) for name in ANSWERS if name in tokenized.column_names]


class PairCounts(Feature):
    """Hooks for a run on rows with several sequences, such as a chosen and a rejected answer."""

    def token_counter(self, bundle: Bundle, kind: type[TokenCounts]) -> type[TokenCounts]:
        """The class that counts the tokens of pairs."""
        return PairTokenCounts
