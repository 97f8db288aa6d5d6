"""A row of the report's table, and functions that format its values."""

from __future__ import annotations

import json
from datetime import timedelta

from xpc.grammar.record import record

LONGEST = 120
"""A longer value is shortened to this many characters."""


@record
class Row:
    """One row of the report's table: a stated, a planned and an actual value as texts. If two of these values differ,
    `why` is the reason.

    `differs` is true if the actual value is not the planned one. A missing value does not count as a difference.
    """

    group: str
    name: str
    requested: str = ""
    planned: str = ""
    actual: str = ""
    why: str = ""
    differs: bool = False


def cut(value: object, quoted: bool = True) -> str:
    """A value as a short text. A string is returned unchanged. Any other value becomes JSON or, if `quoted` is false,
    `str(value)`.
    """
    try:
        text = str(value) if isinstance(value, str) or not quoted else json.dumps(value)
    except RecursionError:  # no run writes such a deeply nested value
        text = "..."
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def size(count: float) -> str:
    """A number of bytes in the largest suitable unit: `1.2 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def time(seconds: float) -> str:
    """A duration as text: `12.3 s` if it is below a minute, otherwise `1:02:03`."""
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=min(round(seconds), 10**12)))


def share(value: float) -> str:
    """A share as a percentage: `6.2 %`."""
    return f"{100 * value:.1f} %"
