"""Rows that are packed into sequences: their number says nothing of rows that were left out."""

from ..core.bundle import Bundle
from ..core.truncation import Counted

WHOLE = ("wrapped", "bfd_split")
"""Ways of packing that lose no token."""


def limit(bundle: Bundle, most: int | None) -> int | None:
    """The tokens of a sequence behind which trl cuts."""
    return None if bundle.arguments.get("packing_strategy", "wrapped") in WHOLE else most


def counted(bundle: Bundle, counted: Counted, prepared: object) -> None:
    """Sequences are no rows."""
    counted.left_out = 0
