"""Count rows and tokens before truncation."""

from collections.abc import Callable
from typing import Any

from ..library_internals.datasets_rows import rearranged


class TokenCounts:
    """Counts rows and tokens before truncation, and the tokens that truncation removes. ``has_counts``: whether any
    rows were counted."""

    left_out_for = "they have no learned token within seq"
    lacks = "has anything to learn"

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.has_counts = False
        self.rows = self.tokens = self.empty = self.cut_rows = self.cut_tokens = self.left_out = self.unlearned = 0
        self.shortest = self.longest = 0

    def mapped(self, real: Callable[..., Any], rows: Any, *args: object, **kwargs: object) -> object:
        """Called in place of ``Dataset.map``: map the rows and, if this tokenizes them, count them."""
        import numpy

        tokenized = real(rows, *args, **kwargs)
        if not self.has_counts and not rearranged(tokenized) and (sequences := self.sequences(tokenized)):
            lengths = numpy.stack(sequences)
            self.count(lengths, numpy.maximum(lengths - (lengths if self.most is None else self.most), 0))
        return tokenized

    def sequences(self, tokenized: Any) -> list[Any]:
        """Lengths in tokens: one array (rows,) for each sequence of a row, such as a chosen and a rejected answer."""
        return [lengths_of(tokenized, "input_ids")] if "input_ids" in tokenized.column_names else []

    def count(self, lengths: Any, over: Any) -> None:
        """Count rows. `lengths` and `over` (the number of cut tokens) are arrays of shape (sequences per row, rows)."""
        self.has_counts, self.rows, self.tokens = True, lengths.shape[1], int(lengths.sum())
        if self.rows:
            longest = lengths.max(axis=0)
            self.empty, self.shortest, self.longest = int((longest == 0).sum()), int(longest.min()), int(longest.max())
            self.cut_tokens, self.cut_rows = int(over.sum()), int((over.max(axis=0) > 0).sum())

    def facts(self) -> dict[str, int] | None:
        """The counts for summary.json."""
        names = ("rows", "tokens", "cut_rows", "cut_tokens", "left_out", "unlearned", "empty")
        return {name: getattr(self, name) for name in names} if self.has_counts else None


def lengths_of(tokenized: Any, name: str) -> Any:
    """The length of each row's list in a token column, as an array."""
    import numpy
    import pyarrow.compute

    return numpy.asarray(pyarrow.compute.list_value_length(tokenized.data.column(name)).to_pylist(), dtype="int64")
