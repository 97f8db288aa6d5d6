"""The marks on the axes of a plot are at round numbers."""

from __future__ import annotations

from math import inf, nan

import pytest

from xpc.runtime.picture import _short, _ticks


@pytest.mark.parametrize(("low", "high", "most", "expected"), [
    (0.0, 10.0, 5, [0, 2, 4, 6, 8, 10]),
    (0.0, 1.0, 4, [0, 0.5, 1.0]),
    (3.0, 3.0, 4, [3.0]),  # a constant curve
    (0.0, inf, 4, [0.0]),
    (0.0, nan, 4, [0.0]),
])  # fmt: skip
def test_round_numbers(low: float, high: float, most: int, expected: list[float]) -> None:
    assert _ticks(low, high, most) == pytest.approx(expected)


def test_the_marks_of_an_axis_have_one_notation() -> None:
    assert [_short(value) for value in (0, 5_000, 10_000, 2.5e6, 0.004)] == ["0", "5k", "10k", "2.5M", "4e-3"]
