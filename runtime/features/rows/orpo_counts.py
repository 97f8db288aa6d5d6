"""Count tokens for ORPO, whose trainer truncates pairs while it tokenizes them. Drop pairs without an answer.

If a prompt alone fills `seq`, trl keeps the pair with an empty answer. The loss of such a pair is a mean over no
tokens: nan. This makes the loss of the whole batch nan. The trainers of dpo, kto and reward drop such rows.
"""

from collections.abc import Callable
from typing import Any

from ...core.feature import Bundle, Feature, Rows
from ...core.token_counts import TokenCounts, lengths_of
from .pair_counts import PairTokenCounts

PAIR, FULL_LENGTHS, HAS_ANSWERS = ("chosen_input_ids", "rejected_input_ids"), "full_lengths", "has_answers"
MASKED = -100
"""The label of a token without a loss. trl masks prompts, so if a pair has no answer, all its labels are -100."""


class Measured:
    """ORPO's tokenization of a row, with two more columns: the lengths of both sequences before truncation, and whether
    both answers have a token left after truncation.
    """

    def __init__(self, tokenize: Any) -> None:
        self.tokenize = tokenize

    def __call__(self, row: Any) -> dict[str, object]:
        """The tokenized row, with the additional columns `FULL_LENGTHS` and `HAS_ANSWERS`."""
        trainer, lengths = self.tokenize.__self__, list[int]()
        build, tokens = trainer.build_tokenized_answer, trainer.processing_class

        def noted(prompt: str, answer: str) -> object:
            tokenized = build(prompt, answer)
            first, last = tokenized["prompt_input_ids"], tokenized["input_ids"]
            # trl adds a begin token and an end token to a sequence that lacks them
            begins = tokens.bos_token_id is None or first[:1] == [tokens.bos_token_id]
            ends = last[-1:] == [tokens.eos_token_id]
            lengths.append(len(first) + len(last) + (not begins) + (not ends))
            return tokenized

        trainer.build_tokenized_answer = noted
        try:
            tokenized = self.tokenize(row)
        finally:
            del trainer.build_tokenized_answer
        labels = tokenized["chosen_labels"], tokenized["rejected_labels"]
        learned = all(one[-1:] not in ([], [MASKED]) for one in labels)
        return {**tokenized, FULL_LENGTHS: lengths, HAS_ANSWERS: learned}


class OrpoCounts(Feature):
    """Hooks for a run with ORPO."""

    def token_counter(self, bundle: Bundle, kind: type[TokenCounts]) -> type[TokenCounts]:
        """The class that counts tokens while ORPO tokenizes."""
        return OrpoTokenCounts


class OrpoTokenCounts(PairTokenCounts):
    """Counts the pairs while ORPO tokenizes them. Drops a pair if an answer has no token left."""

    def mapped(self, real: Callable[..., Any], rows: Rows, *args: Any, **kwargs: object) -> object:
        """Called in place of ``Dataset.map`` while ORPO tokenizes: return only pairs in which both answers have a token
        left."""
        if getattr(args[0] if args else None, "__name__", "") != "tokenize_row":
            return super().mapped(real, rows, *args, **kwargs)
        return self.complete_pairs(real(rows, Measured(args[0]), *args[1:], **kwargs))

    def complete_pairs(self, tokenized: Any) -> object:
        """Count the pairs before and after truncation, and drop a pair if an answer has no token left."""
        import numpy

        if FULL_LENGTHS not in tokenized.column_names:  # a dataset without rows has no columns
            return tokenized
        if not self.has_counts:
            lengths = numpy.asarray(tokenized[FULL_LENGTHS][:], dtype="int64").reshape(len(tokenized), 2).T
            self.count(lengths, lengths - numpy.stack([lengths_of(tokenized, name) for name in PAIR]))
        kept = numpy.flatnonzero(tokenized[HAS_ANSWERS][:])
        tokenized = tokenized.remove_columns([FULL_LENGTHS, HAS_ANSWERS])
        return tokenized if len(kept) == len(tokenized) else tokenized.select(kept)
