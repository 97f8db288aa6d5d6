"""Rows and tokens counted before anything is truncated."""

from collections.abc import Callable
from typing import Any

from ..library_internals.datasets_rows import rearranged


class TokenCounts:
    """Rows and tokens before anything is cut, and what is lost of them; ``seen`` once there was something to count."""

    left_out_for = "nothing to learn is left of them within seq"
    lacks = "has anything to learn"

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.has_counts = False
        self.rows = self.tokens = self.empty = self.cut_rows = self.cut_tokens = self.left_out = self.unlearned = 0
        self.shortest = self.longest = 0

    def mapped(self, real: Callable[..., Any], rows: Any, *args: Any, **kwargs: Any) -> Any:
        """``Dataset.map``, whose rows are counted once they are tokens."""
        import numpy

        tokenized = real(rows, *args, **kwargs)
        if not self.has_counts and not rearranged(tokenized) and (sequences := self.sequences(tokenized)):
            lengths = numpy.stack(sequences)
            self.count(lengths, numpy.maximum(lengths - (lengths if self.most is None else self.most), 0))
        return tokenized

    def sequences(self, tokenized: Any) -> list[Any]:
        """The lengths of the rows' sequences: one array for each that a row has."""
        return [lengths_of(tokenized, "input_ids")] if "input_ids" in tokenized.column_names else []

    def count(self, lengths: Any, over: Any) -> None:
        """Lengths of sequences and what is cut off, one line for each answer and one column for each row."""
        self.has_counts, self.rows, self.tokens = True, lengths.shape[1], int(lengths.sum())
        if self.rows:
            longest = lengths.max(axis=0)
            self.empty, self.shortest, self.longest = int((longest == 0).sum()), int(longest.min()), int(longest.max())
            self.cut_tokens, self.cut_rows = int(over.sum()), int((over.max(axis=0) > 0).sum())

    def facts(self) -> dict[str, int] | None:
        """For summary.json."""
        names = ("rows", "tokens", "cut_rows", "cut_tokens", "left_out", "unlearned", "empty")
        return {name: getattr(self, name) for name in names} if self.has_counts else None


def lengths_of(tokenized: Any, name: str) -> Any:
    """The tokens of each row in a column of tokens."""
    import numpy
    import pyarrow.compute

    return numpy.asarray(pyarrow.compute.list_value_length(tokenized.data.column(name)).to_pylist(), dtype="int64")
