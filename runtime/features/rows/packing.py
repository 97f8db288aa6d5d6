"""Packed rows: their number of sequences does not show how many rows the trainer has dropped."""

from ...core.feature import Bundle, Feature
from ...core.token_counts import TokenCounts

LOSSLESS = ("wrapped", "bfd_split")
"""Packing strategies that lose no token."""


class Packing(Feature):
    """Hooks for a run with packed rows."""

    def truncation_limit(self, bundle: Bundle, most: int | None) -> int | None:
        """The truncation limit, or None if the packing strategy loses no token."""
        return None if bundle.arguments.get("packing_strategy", "wrapped") in LOSSLESS else most

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: object) -> None:
        """Report no rows as dropped, because the number of packed sequences is not the number of rows."""
        counted.left_out = 0
