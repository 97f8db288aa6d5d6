"""A global batch that does not divide gets the arithmetic and the nearest batches that do."""

from __future__ import annotations

from case_support import spec
from compile_support import checked, only


def test_a_batch_with_a_stated_accumulation_gets_the_nearest_one() -> None:
    found = only(checked(spec(batch="gbs=100 accum=3 seq=512")), "XP201")
    assert found.message == "gbs=100 is not micro x 3 accumulation x 8 GPUs"
    assert found.primary is not None
    assert found.primary.text == "100 / (3 x 8) = 4.17"
    assert found.help == "the nearest global batch is gbs=96"
