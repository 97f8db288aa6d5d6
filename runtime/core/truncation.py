"""What becomes of the rows' tokens, of which trl tells nothing: how many are cut off, which rows are left out.

trl's trainers tokenize in their constructors with ``Dataset.map``: what comes out of it first is looked at.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..library_internals.datasets_rows import map_replaced, rearranged
from .bundle import Bundle
from .errors import RunError, say

WHOLE = ("wrapped", "bfd_split")
"""Ways of packing that lose no token."""


def limit(bundle: Bundle) -> int | None:
    """The tokens of a sequence behind which trl cuts, or None where it does not."""
    arguments = bundle.arguments
    if arguments.get("packing") and arguments.get("packing_strategy", "wrapped") in WHOLE:
        return None
    found = arguments.get("max_length")
    return None if found is None else int(found)


class Counted:
    """Rows and tokens before anything is cut, and what is lost of them; ``seen`` once there was something to count."""

    prompts: Sequence[str] = ()
    answers: Sequence[str] = ("input_ids",)
    """The columns of tokens; every answer stands behind the prompt."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.seen = False
        self.rows = self.tokens = self.empty = self.cut_rows = self.cut_tokens = self.left_out = self.unlearned = 0
        self.shortest = self.longest = 0

    def look(self, made: Any) -> None:
        """Counts the tokens of prepared rows."""
        import numpy

        answers = [name for name in self.answers if name in made.column_names]
        if self.seen or not answers or rearranged(made):
            return
        prompts = [lengths_of(made, name) for name in self.prompts if name in made.column_names]
        whole = numpy.stack([sum(prompts, lengths_of(made, name)) for name in answers])
        self.count(whole, numpy.maximum(whole - (whole if self.most is None else self.most), 0))

    def count(self, whole: Any, over: Any) -> None:
        """Lengths of sequences and what is cut off, one line for each answer and one column for each row."""
        there = whole.shape[1] > 0
        self.seen, self.rows, self.tokens = True, whole.shape[1], int(whole.sum())
        if there:
            longest = whole.max(axis=0)
            self.empty, self.shortest, self.longest = int((longest == 0).sum()), int(longest.min()), int(longest.max())
            self.cut_tokens, self.cut_rows = int(over.sum()), int((over.max(axis=0) > 0).sum())

    def facts(self) -> dict[str, int] | None:
        """For summary.json."""
        if not self.seen:
            return None
        names = ("rows", "tokens", "cut_rows", "cut_tokens", "left_out", "unlearned", "empty")
        return {name: getattr(self, name) for name in names}


def lengths_of(made: Any, name: str) -> Any:
    """The tokens of each row in a column of tokens."""
    import numpy
    import pyarrow.compute

    return numpy.asarray(pyarrow.compute.list_value_length(made.data.column(name)).to_pylist(), dtype="int64")


@contextmanager
def watching(bundle: Bundle) -> Iterator[Counted]:
    """While it lasts, the first rows that are mapped to tokens are counted."""
    counted = Counted(limit(bundle))
    bundle.step("name_columns", counted)

    def mapped(real: Any, rows: Any, *given: Any, **named: Any) -> Any:
        made = bundle.changed("measuring", real, counted, lengths_of)(rows, *given, **named)
        counted.look(made)
        return made

    with map_replaced(mapped):
        yield counted


def settle(bundle: Bundle, counted: Counted, given: int, prepared: Any) -> None:
    """Says what is lost of the rows that trl was given. Raises RunError when nothing is left to train on."""
    try:
        left = len(prepared)
    except TypeError:
        return
    packed = bool(bundle.arguments.get("packing"))
    if not packed and not bundle.generates:
        counted.left_out = max(0, given - left)
        counted.unlearned = sum(bundle.step("unlearned", prepared))
    if left == counted.unlearned:  # none, or none that teaches
        raise RunError(_nothing(bundle, counted, given))
    if bundle.scores:  # too long a row is left out, and none is cut
        counted.cut_rows = counted.cut_tokens = 0
    if counted.cut_rows:
        say(
            f"{counted.cut_rows:,} of {counted.rows:,} rows have more than seq = {counted.most:,} tokens (the longest "
            f"{counted.longest:,}): {counted.cut_tokens:,} of {counted.tokens:,} tokens are cut off"
        )
    if counted.left_out:
        why = "they are longer than seq" if bundle.scores else "nothing to learn is left of them within seq"
        say(f"{counted.left_out:,} of {given:,} rows are left out by the trainer: {why}")
    if counted.unlearned:
        say(f"{counted.unlearned:,} of {left:,} rows have nothing to learn within seq: their loss is none")
    if counted.empty:
        say(f"{counted.empty:,} of {counted.rows:,} rows have no tokens")


def _nothing(bundle: Bundle, counted: Counted, given: int) -> str:
    if not counted.seen or counted.most is None:
        return f"nothing is left to train on: the trainer leaves out all {given:,} rows"
    has = f"they have {counted.shortest:,} to {counted.longest:,} tokens"
    what = "fits" if bundle.scores else "has anything to learn"
    return (
        f"nothing is left to train on: none of {given:,} rows {what} within seq = {counted.most:,} tokens ({has}); "
        "write a larger seq, or shorten the rows"
    )
