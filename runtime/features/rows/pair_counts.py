"""Count the tokens of rows with several sequences, under the column names that trl 0.18 to 1.16 use."""

from collections.abc import Callable
from typing import Any

from ...core.feature import Bundle, Feature
from ...core.token_counts import TokenCounts, lengths_of

KTO_ANSWER = "answer_input_ids"
PROMPTS = ("prompt_ids", "prompt_input_ids")
ANSWERS = (
    "input_ids", "chosen_ids", "rejected_ids", "completion_ids", "chosen_input_ids", "rejected_input_ids",
    KTO_ANSWER, "input_ids_chosen", "input_ids_rejected",
)  # fmt: skip


class PairTokenCounts(TokenCounts):
    """Counts the sequences of a pair: the prompt with the chosen answer, and the prompt with the rejected one."""

    def mapped(self, real: Callable[..., Any], rows: Any, *args: Any, **kwargs: Any) -> Any:
        """Called in place of ``Dataset.map``. Also keep the tokenizer, which KTO of trl before 1.0 passes to ``map``:
        `added` needs it.
        """
        self.tokenizer: Any = (kwargs.get("fn_kwargs") or {}).get("tokenizer")
        return super().mapped(real, rows, *args, **kwargs)

    def sequences(self, tokenized: Any) -> list[Any]:
        """For each answer, the lengths of the prompt and this answer together."""
        prompts = [lengths_of(tokenized, name) for name in PROMPTS if name in tokenized.column_names]
        answers = [lengths_of(tokenized, name) for name in ANSWERS if name in tokenized.column_names]
        if KTO_ANSWER in tokenized.column_names and self.tokenizer is not None:
            answers = [one + self.added(tokenized) for one in answers]
        return [sum(prompts, one) for one in answers]

    def added(self, tokenized: Any) -> Any:
        """For each row, the number of tokens that KTO of trl before 1.0 adds after it has tokenized the row: a begin
        token before the prompt, and an end token after the answer.
        """
        import numpy

        begin, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        rows = zip(tokenized["prompt_input_ids"], tokenized[KTO_ANSWER], strict=True)
        return numpy.asarray(
            [(begin is not None and first[:1] != [begin]) + (last[-1:] != [end]) for first, last in rows], dtype="int64"
        )


class PairCounts(Feature):
    """Hooks for a run on rows with several sequences, such as a chosen and a rejected answer."""

    def token_counter(self, bundle: Bundle, kind: type[TokenCounts]) -> type[TokenCounts]:
        """The class that counts the tokens of pairs."""
        return PairTokenCounts
