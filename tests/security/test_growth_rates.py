"""The time of each parser grows at most like n log n with the size n of the input: an input of eight times the size
takes about eight times as long.

A time is the least of five measurements, in CPU seconds of this process. An input is left out if its largest size is
refused at once. `make slow` and `make soak` run these tests.
"""

from __future__ import annotations

import time
from math import inf

import pytest
from growing import INPUTS as PARSED
from growing import Work
from growing_commits import COMMITS
from growing_editor import EDITORS

pytestmark = pytest.mark.nightly

INPUTS = {**PARSED, **COMMITS, **EDITORS}
LEAST = 0.3
"""The larger input must take at least this many CPU seconds, because shorter times cannot be compared."""
MOST = 16.0
"""The time for the larger input may be at most this many times the time for the smaller one. For eight times the size,
n log n gives 10 to 12, and n squared gives 64.
"""
FIRST, LARGEST = 64, 2_000_000


def seconds(work: Work, times: int, enough: float = 0.0) -> float:
    """Run the work several times (at most `times`); return the CPU seconds of the fastest run. If a run takes less than
    `enough` seconds, stop there.
    """
    least = inf
    for _ in range(times):
        started = time.process_time()
        work()
        least = min(least, time.process_time() - started)
        if least < enough:
            break
    return least


@pytest.mark.parametrize("name", INPUTS)
def test_eight_times_the_size_takes_eight_times_as_long(name: str) -> None:
    make, size = INPUTS[name], FIRST
    # the first call also imports modules and reads tables, so it is not measured
    make(FIRST)()
    while seconds(make(8 * size), 2, LEAST) < LEAST:
        size *= 2
        if 8 * size > LARGEST:
            # nothing to compare: inputs of this size are refused, or are too fast to measure
            return
    ratio = seconds(make(8 * size), 5) / max(seconds(make(size), 5), 1e-4)
    if ratio >= MOST:
        # Try larger inputs: beyond a limit, such as the limit of nesting, the time does not grow any more.
        size *= 8
        ratio = seconds(make(8 * size), 5) / seconds(make(size), 5)
    assert ratio < MOST, f"{name}: {size:,} -> {8 * size:,} takes {ratio:.1f} times as long"
