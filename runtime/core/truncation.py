"""What becomes of the rows' tokens, of which trl tells nothing: how many are cut off, which rows are left out.

trl's trainers tokenize in their constructors with ``Dataset.map``: what comes out of it first is looked at.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..library_internals.datasets_rows import map_replaced, rearranged
from .bundle import Bundle
from .errors import RunError, say


def limit(bundle: Bundle) -> int | None:
    """The tokens of a sequence behind which trl cuts, or None where it does not."""
    most: int | None = bundle.changed("limit", bundle.arguments.get("max_length"))
    return most


class Counted:
    """Rows and tokens before anything is cut, and what is lost of them; ``seen`` once there was something to count."""

    left_out_for = "nothing to learn is left of them within seq"
    lacks = "has anything to learn"

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.seen = False
        self.rows = self.tokens = self.empty = self.cut_rows = self.cut_tokens = self.left_out = self.unlearned = 0
        self.shortest = self.longest = 0

    def mapped(self, real: Callable[..., Any], rows: Any, *given: Any, **named: Any) -> Any:
        """``Dataset.map``, whose rows are counted once they are tokens."""
        import numpy

        made = real(rows, *given, **named)
        if not self.seen and not rearranged(made) and (sequences := self.sequences(made)):
            whole = numpy.stack(sequences)
            self.count(whole, numpy.maximum(whole - (whole if self.most is None else self.most), 0))
        return made

    def sequences(self, made: Any) -> list[Any]:
        """The lengths of the rows' sequences: one array for each that a row has."""
        return [lengths_of(made, "input_ids")] if "input_ids" in made.column_names else []

    def count(self, whole: Any, over: Any) -> None:
        """Lengths of sequences and what is cut off, one line for each answer and one column for each row."""
        self.seen, self.rows, self.tokens = True, whole.shape[1], int(whole.sum())
        if self.rows:
            longest = whole.max(axis=0)
            self.empty, self.shortest, self.longest = int((longest == 0).sum()), int(longest.min()), int(longest.max())
            self.cut_tokens, self.cut_rows = int(over.sum()), int((over.max(axis=0) > 0).sum())

    def facts(self) -> dict[str, int] | None:
        """For summary.json."""
        names = ("rows", "tokens", "cut_rows", "cut_tokens", "left_out", "unlearned", "empty")
        return {name: getattr(self, name) for name in names} if self.seen else None


def lengths_of(made: Any, name: str) -> Any:
    """The tokens of each row in a column of tokens."""
    import numpy
    import pyarrow.compute

    return numpy.asarray(pyarrow.compute.list_value_length(made.data.column(name)).to_pylist(), dtype="int64")


@contextmanager
def watching(bundle: Bundle) -> Iterator[Counted]:
    """While it lasts, the first rows that are mapped to tokens are counted."""
    counted = bundle.changed("counter", Counted)(limit(bundle))
    with map_replaced(counted.mapped):
        yield counted


def settle(bundle: Bundle, counted: Counted, given: int, prepared: Any) -> None:
    """Says what is lost of the rows that trl was given. Raises RunError when nothing is left to train on."""
    counted.left_out = max(0, given - len(prepared))
    bundle.step("counted", counted, prepared)
    if len(prepared) == counted.unlearned:  # none, or none that teaches
        raise RunError(_nothing(counted, given))
    if counted.cut_rows:
        say(
            f"{counted.cut_rows:,} of {counted.rows:,} rows have more than seq = {counted.most:,} tokens (the longest "
            f"{counted.longest:,}): {counted.cut_tokens:,} of {counted.tokens:,} tokens are cut off"
        )
    if counted.left_out:
        say(f"{counted.left_out:,} of {given:,} rows are left out by the trainer: {counted.left_out_for}")
    if counted.empty:
        say(f"{counted.empty:,} of {counted.rows:,} rows have no tokens")


def _nothing(counted: Counted, given: int) -> str:
    if not counted.seen or counted.most is None:
        return f"nothing is left to train on: the trainer leaves out all {given:,} rows"
    has = f"they have {counted.shortest:,} to {counted.longest:,} tokens"
    return (
        f"nothing is left to train on: none of {given:,} rows {counted.lacks} within seq = {counted.most:,} tokens "
        f"({has}); write a larger seq, or shorten the rows"
    )
