"""Packed rows: filter trl's warnings, and correct the counts of truncated tokens and dropped rows."""

import logging

from ...core.feature import Bundle, Feature, Rows
from ...core.token_counts import TokenCounts

LOSSLESS = ("wrapped", "bfd_split")
"""Packing strategies that lose no token."""
DOUBTS = ("Padding-free training is enabled, but the attention", "You are using packing, but the attention")
"""Beginnings of trl's warnings that documents might attend to each other. The compiler has already checked that the
model's attention prevents this (XP310, XP311)."""


class Packing(Feature):
    """Hooks for a run with packed rows."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Suppress trl's warnings that the attention of packed rows may be wrong."""
        logger = logging.getLogger("trl.trainer.sft_trainer")
        logger.addFilter(lambda record: not record.getMessage().startswith(DOUBTS))

    def truncation_limit(self, bundle: Bundle, most: int | None) -> int | None:
        """The truncation limit, or None if the packing strategy drops no token."""
        return None if bundle.arguments.get("packing_strategy", "wrapped") in LOSSLESS else most

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: Rows) -> None:
        """Report no dropped rows, because trl's number of packed sequences says nothing about the number of rows."""
        counted.left_out = 0
