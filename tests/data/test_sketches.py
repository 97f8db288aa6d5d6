"""From a sketch of each of two files, the compiler computes the share of rows that the files have in common."""

from __future__ import annotations

import json

import pytest

from xpc.compiler.data.survey import survey
from xpc.compiler.spec.survey import SKETCH, Survey


def of(numbers: range | list[int]) -> Survey:
    data = "".join(json.dumps({"prompt": f"Say {one}.", "completion": str(one)}) + "\n" for one in numbers)
    return survey(data.encode(), "a.jsonl", "prompt_completion", ("prompt", "completion"))


@pytest.mark.parametrize(("own", "other", "share"), [
    (range(8), range(8), 1),
    (range(8), [*reversed(range(16))], 1),
    (range(8), range(4, 16), 0.5),
    (range(8), range(8, 16), 0),
    ([], range(8), 0),
    ([1, 1, 2], range(2, 8), 0.5),
])  # fmt: skip
def test_small_files_are_compared_exactly(own: range | list[int], other: range | list[int], share: float) -> None:
    assert of(own).shared(of(other)) == share


@pytest.mark.slow
def test_large_files_are_estimated() -> None:
    train = of(range(20_000))
    assert len(train.sketch) == SKETCH
    assert of(range(2_000, 12_000)).shared(train) == 1
    assert of(range(15_000, 25_000)).shared(train) == pytest.approx(0.5, abs=0.1)
    assert of(range(20_000, 30_000)).shared(train) == 0
