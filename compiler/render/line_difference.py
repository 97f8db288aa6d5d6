"""Show the difference of two texts line by line, as difflib does. difflib is slow if lines repeat many times; this
module is fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

WORK = 2 * 10**8
"""Changed parts with many repeated lines are not compared line by line. The limit is on a product: the number of lines
of the part, times the number of pairs of an old line and an equal new line. Without this limit, difflib would take
hours for a few megabytes of repeated lines. At the limit, it takes a second for ordinary texts.
"""
Block = tuple[int, int, int, int]
"""A part that has changed, as (i, j, k, m): the lines [k, m) of the new text replace the lines [i, j) of the old text.
"""


def line_difference(old: Sequence[str], new: Sequence[str], before: str, after: str, context: int = 2) -> list[str]:
    """A unified diff in difflib's format, with the names `before` and `after`. A long part with many repeated lines is
    shown as if all its lines were replaced.
    """
    lines: list[str] = []
    hunk: list[Block] = []
    for block in blocks(old, new):
        if hunk and block[0] - hunk[-1][1] > 2 * context:
            lines += _hunk(hunk, old, new, context)
            hunk = []
        hunk.append(block)
    if hunk:
        lines += _hunk(hunk, old, new, context)
    return [f"--- {before}", f"+++ {after}", *lines] if lines else []


def blocks(old: Sequence[str], new: Sequence[str], work: int = WORK) -> Iterator[Block]:
    """The parts that have changed, in the order of the lines. `work` replaces the limit WORK."""
    start = common(old, new)
    end = common(old[start:][::-1], new[start:][::-1])
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    counts = Counter(b)
    pairs = sum(counts[line] for line in a)
    if max(len(a), len(b)) * pairs > work:
        yield start, start + len(a), start, start + len(b)
        return
    for tag, i, j, k, m in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield start + i, start + j, start + k, start + m


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal lines, or characters, at the beginning of two texts."""
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _hunk(blocks: Sequence[Block], old: Sequence[str], new: Sequence[str], context: int) -> Iterator[str]:
    (i, _, k, _), (_, j, _, m) = blocks[0], blocks[-1]
    above, below = min(context, i, k), min(context, len(old) - j, len(new) - m)
    i, j, k, m = i - above, j + below, k - above, m + below
    yield f"@@ -{i + (j > i)},{j - i} +{k + (m > k)},{m - k} @@"
    at = i
    for start, stop, first, last in blocks:
        yield from (f" {line}" for line in old[at:start])
        yield from (f"-{line}" for line in old[start:stop])
        yield from (f"+{line}" for line in new[first:last])
        at = stop
    yield from (f" {line}" for line in old[at:j])
