"""How datasets holds rows (datasets 5)."""

from __future__ import annotations

from typing import Any


def rearranged(rows: Any) -> bool:
    """Whether the rows are a choice of those of their table, or in another order: its columns are not theirs then."""
    return getattr(rows, "_indices", None) is not None
