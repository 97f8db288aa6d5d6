"""Compute how many rows of each source a mixture with shares has. Standard library only, because the compiler uses this
module.

Two sources of 700 and 5,000 rows with shares of 70 % and 30 % give 700 and 300 rows with ``stop``, which ends with the
first source that has no more rows, and 11,667 and 5,000 with ``repeat``, which uses every row at least once.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any

from ...core.errors import RunError


def counts(
    names: Sequence[str],
    rows: Sequence[int],
    shares: Sequence[float],
    exhausted: str,
    holdout: Mapping[str, Any] | None,
) -> tuple[list[int], list[int]]:
    """For each source, how many rows are trained on and how many are held out; ``rows`` has the size of each named
    source.

    The held-out rows are divided by the same shares; a fraction is one of the mixture without repeated rows. Raises
    RunError for a source that has too few rows.
    """
    parts = [Fraction(share).limit_denominator(10**6) for share in shares]
    parts = [part / sum(parts) for part in parts]
    held = [0] * len(rows)
    if holdout is not None:
        least = floor(min(Fraction(count) / part for count, part in zip(rows, parts, strict=True)))
        asked = int(holdout["rows"]) if "rows" in holdout else ceil(holdout["fraction"] * least)
        if asked == 0:
            raise RunError("the holdout has no rows")
        held = _divided(asked, parts)
    left = [count - out for count, out in zip(rows, held, strict=True)]
    for name, count, out in zip(names, rows, held, strict=True):
        if count <= out:
            raise RunError(f"{name} has {count:,} rows, and {out:,} of them would be held out")
    lengths = [Fraction(count) / part for count, part in zip(left, parts, strict=True)]
    used = _divided(ceil(max(lengths)) if exhausted == "repeat" else floor(min(lengths)), parts)
    for name, count in zip(names, used, strict=True):
        if count == 0:
            raise RunError(f"{name} would have none of the mixture's {sum(used):,} rows")
    return used, held


def _divided(total: int, parts: Sequence[Fraction]) -> list[int]:
    """Divide ``total`` by these parts; the parts with the largest remainders are rounded up."""
    exact = [total * part for part in parts]
    out = [floor(one) for one in exact]
    order = sorted(range(len(parts)), key=lambda number: out[number] - exact[number])
    for number in order[: total - sum(out)]:
        out[number] += 1
    return out
