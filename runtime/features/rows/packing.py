"""Rows that are packed into sequences: their number says nothing of rows that were left out."""

from ...core.feature import Bundle, Feature
from ...core.token_counts import TokenCounts

LOSSLESS = ("wrapped", "bfd_split")
"""Ways of packing that lose no token."""


class Packing(Feature):
    """Rows that are packed into sequences."""

    def truncation_limit(self, bundle: Bundle, most: int | None) -> int | None:
        """The tokens of a sequence behind which trl cuts."""
        return None if bundle.arguments.get("packing_strategy", "wrapped") in LOSSLESS else most

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: object) -> None:
        """Sequences are no rows."""
        counted.left_out = 0
