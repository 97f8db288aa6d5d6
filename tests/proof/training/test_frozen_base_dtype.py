"""How much does the dtype of a frozen base (bf16 instead of fp32) change the trained adapter? Less than half as much as
the size of the micro-batch does (4 instead of 2).

A frozen base is stored in fp32 by default, and `xpc check` proposes bf16 (`note_frozen_dtype`). The tiny base is
published in fp32, so bf16 also rounds its weights. A checkpoint that was published in bf16 would not be rounded.
"""

from __future__ import annotations

import os
from array import array

import pytest
from method_runs import Warm, small, tensors

from xpc.compiler.stacks import STACKS

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def apart(one: str, other: str) -> float:
    """The distance between two adapters, divided by the norm of the first. Only those matrices count that are zero
    before training.
    """
    first, second = (tensors(os.path.join(path, "adapter_model.safetensors")) for path in (one, other))
    pairs = [(array("f", first[name]), array("f", second[name])) for name in first if "lora_B" in name]
    moved = sum((before - after) ** 2 for pair in pairs for before, after in zip(*pair, strict=True))
    return float((moved / sum(value**2 for values, _ in pairs for value in values)) ** 0.5)


@pytest.mark.parametrize("stack", STACKS)
def test_a_base_in_bf16_moves_an_adapter_less_than_another_micro_batch(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, stack: str
) -> None:
    left = {}
    for name, micro, more in (("fp32", 4, ""), ("bf16", 4, "model(dtype=bf16)"), ("smaller", 2, "")):
        text = small("lora", more, method="sft", target=stack, save='save "out" every=never')
        text = text.replace("micro=2", f"micro={micro}").replace("precision fp32", "precision bf16")
        cwd = str(tmp_path_factory.mktemp(name))
        left[name] = warm.train(text, f"{stack}-base-{name}", stack, cwd).out
    dtype, order = apart(left["fp32"], left["bf16"]), apart(left["fp32"], left["smaller"])
    print(f"{stack}: {dtype:.1%} by the dtype, {order:.1%} by the micro-batch")
    assert 0.01 < dtype < order / 2
