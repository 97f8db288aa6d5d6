"""For a mixture with shares, the runtime computes how many rows of each source the run gets."""

from __future__ import annotations

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows.shares import counts


def of(there: list[int], shares: list[float], exhausted: str = "stop", **holdout: float) -> tuple[list[int], list[int]]:
    return counts([f"{one}.jsonl" for one in "abc"[: len(there)]], there, shares, exhausted, holdout or None)


@pytest.mark.parametrize(
    ("rows", "shares", "stop", "repeat"),
    [
        ([700, 5000], [0.7, 0.3], [700, 300], [11667, 5000]),
        ([70, 30], [0.7, 0.3], [70, 30], [70, 30]),
        ([10, 10, 10], [0.3333, 0.3333, 0.3334], [10, 9, 10], [10, 10, 11]),
        ([9, 20, 40], [1 / 3, 1 / 3, 1 / 3], [9, 9, 9], [40, 40, 40]),
        ([7, 100], [0.1, 0.9], [7, 63], [11, 101]),
        ([5], [1.0], [5], [5]),
        ([3, 1000], [0.001, 0.999], [1, 1000], [3, 2997]),
    ],
)
def test_a_mixture_stops_with_its_first_source_or_repeats(
    rows: list[int], shares: list[float], stop: list[int], repeat: list[int]
) -> None:
    assert of(rows, shares)[0] == stop
    assert of(rows, shares, "repeat")[0] == repeat


def test_shares_hold_for_any_numbers() -> None:
    for first in range(20, 90, 7):
        for second in range(20, 200, 13):
            for share in (0.1, 0.25, 0.5, 0.7, 0.95):
                used, _ = of([first, second], [share, 1 - share])
                assert used[0] <= first
                assert used[1] <= second
                assert used[0] == first or used[1] == second or sum(used) + 1 > min(first / share, second / (1 - share))
                assert abs(used[0] - share * sum(used)) < 1
                again, _ = of([first, second], [share, 1 - share], "repeat")
                assert again[0] >= first
                assert again[1] >= second
                assert abs(again[0] - share * sum(again)) < 1


@pytest.mark.parametrize("exhausted", ["stop", "repeat"])
def test_held_out_rows_have_the_shares_and_leave_the_mixture(exhausted: str) -> None:
    used, held = of([700, 5000], [0.7, 0.3], exhausted, rows=100)
    assert held == [70, 30]
    assert used == ([630, 270] if exhausted == "stop" else [11597, 4970])
    used, held = of([700, 5000], [0.7, 0.3], exhausted, fraction=0.05)
    assert held == [35, 15]


def test_a_source_that_is_too_small_is_named() -> None:
    with pytest.raises(RunError, match=r"a.jsonl has 10 rows, and the holdout takes 70"):
        of([10, 50], [0.7, 0.3], rows=100)
    with pytest.raises(RunError, match=r"a.jsonl has no row to train on: remove it, or raise batch.seq"):
        of([0, 50], [0.7, 0.3])
    with pytest.raises(RunError, match=r"a.jsonl has 70 rows, and the holdout takes 70"):
        of([70, 5000], [0.7, 0.3], rows=100)
    with pytest.raises(RunError, match=r"b.jsonl would have none of the mixture's 10 rows"):
        of([10, 50], [0.999, 0.001])


def test_a_holdout_of_no_row_is_refused() -> None:
    """A holdout without rows is refused. Only `rows = 0` can cause such a holdout: a share that is less than one row is
    rounded up to one row.
    """
    assert of([10, 50], [0.7, 0.3], fraction=0.001)[1] == [1, 0]
    with pytest.raises(RunError, match="the holdout has no rows"):
        of([10, 50], [0.7, 0.3], rows=0)
