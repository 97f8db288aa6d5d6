"""The table of coefficients against real models: bytes that autograd keeps are what the table says, to the byte."""

from __future__ import annotations

import pytest

from xpc.compiler.plan import coefficients

SHAPE, RANK = (96, 128, 8, 2, 16, 6, 2), 6
FEW = ["full/bf16/sdpa", "full/bf16/mask", "full/amp/sdpa", "lora-all/amp/sdpa"]
"""What the slow tier measures again of one family, at a shape; the nightly one measures everything."""


def compared(family: str, modes: list[str], shape: tuple[int, ...]) -> None:
    oracle = pytest.importorskip("oracle")
    known = oracle.facts(family, shape)
    assert not isinstance(known, str), known
    bounds = coefficients.differences().get(family, {})
    for mode, measured in oracle.measure(family, shape, RANK, modes).items():
        linear, quadratic = oracle.growth(measured)
        found = coefficients.families()[family][mode]
        length = oracle.LENGTHS[-1]
        rank = RANK if mode.startswith("lora") else 0
        expected = coefficients.saved(found, known, length, rank) * oracle.period(family)
        allowed = float(bounds.get(mode, "0%").rstrip("%")) / 100 * expected
        assert abs(linear + quadratic * length - expected) <= allowed + 1e-6, (family, mode)


@pytest.mark.slow
def test_a_layer_keeps_what_the_table_says():
    compared("qwen2", FEW, SHAPE)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("family", sorted(coefficients.families()))
def test_every_family_keeps_what_the_table_says(family):
    oracle = pytest.importorskip("oracle")
    compared(family, list(coefficients.families()[family]), oracle.shapes(family)[4])
