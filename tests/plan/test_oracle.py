"""The table of coefficients against real models: bytes that autograd keeps are what the table says, to the byte."""

from __future__ import annotations

import pytest

from xpc.compiler.plan import coefficients
from xpc.compiler.registry.linear_layers import linear_layers, lora_parameters

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


def compared_adapters(family: str, shape: tuple[int, ...]) -> None:
    oracle = pytest.importorskip("oracle")
    known = oracle.facts(family, shape, 2)
    model = oracle.adapted(oracle.built(family, shape, 2, "eager", oracle.torch.bfloat16), "all", RANK, 0.0, False)
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    assert trained == lora_parameters(known, RANK, linear_layers(known)), family


@pytest.mark.slow
def test_a_layer_keeps_what_the_table_says():
    compared("qwen2", FEW, SHAPE)
    compared_adapters("qwen2", SHAPE)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("family", sorted(coefficients.families()))
def test_every_family_keeps_what_the_table_says(family):
    oracle = pytest.importorskip("oracle")
    compared(family, list(coefficients.families()[family]), oracle.shapes(family)[4])
    compared_adapters(family, oracle.shapes(family)[4])
