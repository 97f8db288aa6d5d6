"""If the global batch is not divisible by micro-batch times processes, the error suggests a global batch that is."""

from __future__ import annotations

from case_support import spec
from compile_support import checked, only


def test_a_global_batch_without_a_micro_batch_is_divided_by_the_gpus() -> None:
    found = checked(spec(batch="gbs=100"))
    one = only(found, "XP201")
    assert one.help == "the nearest global batches are gbs=96 (accumulation 12) and gbs=104 (accumulation 13)"
