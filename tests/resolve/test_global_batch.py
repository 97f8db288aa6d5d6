"""If the global batch is not divisible by micro-batch times processes, the error suggests a global batch that is."""

from __future__ import annotations

import pytest
from case_support import spec
from compile_support import checked, of, only


def test_a_global_batch_without_a_micro_batch_is_divided_by_the_gpus() -> None:
    found = checked(spec(batch="gbs=100"))
    one = only(found, "XP201")
    assert one.help == "the nearest global batches are gbs=96 (accumulation 12) and gbs=104 (accumulation 13)"


@pytest.mark.parametrize(
    ("hardware", "why"), [("1 x h100-80gb", "a usual global batch"), ("6 x h100-80gb", "the multiple of 6 nearest to")]
)
def test_an_assumed_global_batch_has_a_reason(hardware: str, why: str) -> None:
    found = checked(f"xpc 1\ntrain qwen2.5-0.5b on infinity-instruct\nhardware {hardware}\n")
    assert any(f", {why}" in one.message for one in of(found, "XP190") if "global batch" in one.message)
