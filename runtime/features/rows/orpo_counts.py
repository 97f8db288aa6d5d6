"""Count tokens for ORPO, whose trainer truncates pairs while it tokenizes them."""

from collections.abc import Callable, MutableMapping
from typing import Any

from ...core.feature import Bundle, Feature
from ...core.token_counts import TokenCounts, lengths_of
from .pair_counts import PairTokenCounts

PAIR, FULL_LENGTHS = ("chosen_input_ids", "rejected_input_ids"), "whole_lengths"


class Measured:
    """ORPO's tokenization with an additional column: the lengths of the two sequences before truncation."""

    def __init__(self, tokenize: Any) -> None:
        self.tokenize = tokenize

    def __call__(self, row: Any) -> dict[str, Any]:
        """The tokens of a row, and the lengths before truncation."""
        trainer, lengths = self.tokenize.__self__, list[int]()
        build, tokens = trainer.build_tokenized_answer, trainer.processing_class

        def noted(prompt: str, answer: str) -> Any:
            tokenized = build(prompt, answer)
            first, last = tokenized["prompt_input_ids"], tokenized["input_ids"]
            begins = tokens.bos_token_id is None or first[:1] == [tokens.bos_token_id]  # else trl adds it
            ends = last[-1:] == [tokens.eos_token_id]
            lengths.append(len(first) + len(last) + (not begins) + (not ends))
            return tokenized

        trainer.build_tokenized_answer = noted
        try:
            return {**self.tokenize(row), FULL_LENGTHS: lengths}
        finally:
            del trainer.build_tokenized_answer


class OrpoCounts(Feature):
    """The feature of a run with ORPO."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Silence the warning of trl.experimental, which contains the class since trl 1.0."""
        environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

    def token_counter(self, bundle: Bundle, kind: type[TokenCounts]) -> type[TokenCounts]:
        """The counter for ORPO."""
        return OrpoTokenCounts


class OrpoTokenCounts(PairTokenCounts):
    """Counts the pairs while ORPO tokenizes them."""

    def mapped(self, real: Callable[..., Any], rows: Any, *args: Any, **kwargs: Any) -> Any:
        """Replace ``Dataset.map``, and return the pairs as the trainer expects them."""
        if getattr(args[0] if args else None, "__name__", "") != "tokenize_row":
            return super().mapped(real, rows, *args, **kwargs)
        return self.count_pairs(real(rows, Measured(args[0]), *args[1:], **kwargs))

    def count_pairs(self, tokenized: Any) -> Any:
        """Count the pairs before and after truncation."""
        import numpy

        if not self.has_counts and FULL_LENGTHS in tokenized.column_names:
            lengths = numpy.asarray(tokenized[FULL_LENGTHS][:], dtype="int64").reshape(len(tokenized), 2).T
            self.count(lengths, lengths - numpy.stack([lengths_of(tokenized, name) for name in PAIR]))
        return tokenized.remove_columns(FULL_LENGTHS)
