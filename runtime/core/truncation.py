"""Count truncated tokens and dropped rows, because trl does not report them.

trl's trainers tokenize in their constructors with ``Dataset.map``. The first result of ``Dataset.map`` with tokens is
counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..library_internals.datasets_rows import map_replaced
from .errors import RunError, say
from .feature import Bundle, Rows
from .token_counts import TokenCounts


def limit(bundle: Bundle) -> int | None:
    """The length in tokens at which trl truncates a sequence; None if it does not truncate."""
    most: int | None = bundle.arguments.get("max_length")
    for feature in bundle.features:
        most = feature.truncation_limit(bundle, most)
    return most


@contextmanager
def watching(bundle: Bundle) -> Iterator[TokenCounts]:
    """A context manager that counts rows: those of the first ``Dataset.map`` inside it that tokenizes."""
    kind = TokenCounts
    for feature in bundle.features:
        kind = feature.token_counter(bundle, kind)
    counted = kind(limit(bundle))
    with map_replaced(counted.mapped):
        yield counted


def settle(bundle: Bundle, counted: TokenCounts, given: int, prepared: Rows) -> None:
    """Report the number of truncated rows and of dropped rows. ``given`` is the number of rows that the trainer got.
    Raises RunError if no row has a token to learn."""
    counted.left_out = max(0, given - len(prepared))
    for feature in bundle.features:
        feature.tokens_counted(bundle, counted, prepared)
    if len(prepared) == counted.unlearned:  # no row is left, or no row has a token to learn
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


def _nothing(counted: TokenCounts, given: int) -> str:
    if not counted.has_counts or counted.most is None:
        return f"nothing is left to train on: the trainer leaves out all {given:,} rows"
    has = f"they have {counted.shortest:,} to {counted.longest:,} tokens"
    return (
        f"nothing is left to train on: none of {given:,} rows {counted.lacks} within seq = {counted.most:,} tokens "
        f"({has}); write a larger seq, or shorten the rows"
    )
