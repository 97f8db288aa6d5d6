"""The table of coefficients against real models: bytes that autograd keeps are what the table says, to the byte."""

from __future__ import annotations

import pytest

from xpc.compiler.plan import coefficients
from xpc.compiler.plan.load import Adapters, Load
from xpc.compiler.plan.memory import memory
from xpc.compiler.registry import find_model, model_names
from xpc.compiler.registry.linear_layers import linear_layers, lora_parameters
from xpc.grammar.record import evolve

SHAPE, RANK = (96, 128, 8, 2, 16, 6, 2), 6
FEW = ("full/bf16/sdpa", "full/bf16/mask", "full/amp/sdpa", "lora-all/amp/sdpa")
"""What the slow tier measures again of one family, at a shape; the nightly one measures everything."""
SLIDING = ("gemma3_text", "mistral", "phi3", "starcoder2")


def compared(family: str, modes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    oracle = pytest.importorskip("oracle")
    known = oracle.facts(family, shape)
    assert not isinstance(known, str), known
    bounds = coefficients.differences().get(family, {})
    how = oracle.modes(family)
    for mode, measured in oracle.measure(family, shape, RANK, {mode: how[mode] for mode in modes}).items():
        linear, quadratic = oracle.growth(measured)
        found = coefficients.families()[family][mode]
        length = oracle.LENGTHS[-1]
        rank = RANK if mode.startswith("lora") else 0
        expected = coefficients.saved(found, known, length, rank) * oracle.period(family)
        allowed = float(bounds.get(mode, "0%").rstrip("%")) / 100 * expected
        assert abs(linear + quadratic * length - expected) <= allowed + 1e-6, (family, mode)


def kept(family: str, shape: tuple[int, ...], window: int, asked: dict[str, object]) -> float:
    """Bytes that a period keeps of the longest row, measured."""
    oracle = pytest.importorskip("oracle")
    ((_, measured),) = oracle.measure(family, shape, RANK, asked, window).items()
    linear, quadratic = oracle.growth(measured)
    return float((linear + quadratic * oracle.LENGTHS[-1]) * oracle.LENGTHS[-1])


def activations(family: str, shape: tuple[int, ...], **changes: object) -> float:
    """Bytes that the plan says a period keeps of the longest row."""
    oracle = pytest.importorskip("oracle")
    known = evolve(oracle.facts(family, shape), **changes.pop("facts", {}))  # type: ignore[arg-type]
    load = Load(
        facts=known, family=family, engine="none", stage=0, world=1, shard=1, offload=0, element=2, weight=2.0,
        amp=False, moments=0.0, temporary=0.0, micro=1, length=oracle.LENGTHS[-1], accumulates=False,
        checkpointing=False, attention="sdpa", loss="fused", trained=float(known.params),
    )  # fmt: skip
    found = memory(evolve(load, **changes))
    assert not isinstance(found, str), found
    return found.phases["forward"]["activations"] / known.layers * oracle.period(family)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("family", SLIDING)
def test_layers_that_slide_keep_what_the_plan_says(family: str) -> None:
    oracle = pytest.importorskip("oracle")
    shape, window = oracle.shapes(family)[4], 16
    layers = oracle.period(family)
    sliding = {"window": window, "windowed": True, "window_layers": 5 if family == "gemma3_text" else 1}
    measured = kept(family, shape, window, {"full/bf16/sdpa": {}})
    assert activations(family, shape, facts=sliding) == pytest.approx(measured, rel=0.017)
    assert activations(family, shape, facts={"window": 1024, "window_layers": layers}) < measured


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("attention", ["mask", "eager"])
def test_adapters_with_another_attention_keep_what_the_plan_says(attention: str) -> None:
    oracle = pytest.importorskip("oracle")
    how = {"lora": ("all", 0.0, False), **oracle.KINDS[attention]}
    tuned = Adapters("all", RANK, 0.0, 2)
    planned = activations("qwen2", SHAPE, attention=attention, adapters=tuned, trained=0.0)
    assert planned == pytest.approx(kept("qwen2", SHAPE, 1024, {"lora-all/bf16": how}), rel=1e-6)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_dropout_of_adapters_keeps_what_the_plan_says() -> None:
    how = {"lora": ("all", 0.05, True), "autocast": True}
    tuned = Adapters("all", RANK, 0.0, 4, 0.05)
    planned = activations("qwen2", SHAPE, adapters=tuned, trained=0.0, amp=True)
    assert planned == pytest.approx(kept("qwen2", SHAPE, 1024, {"lora-all/amp": how}), rel=1e-6)


def test_every_family_of_the_registry_has_coefficients() -> None:
    models = [find_model(name) for name in model_names()]
    assert {one.model_type for one in models if one is not None} <= set(coefficients.families())


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
    compared(family, tuple(coefficients.families()[family]), oracle.shapes(family)[4])
    if family not in oracle.MIXTURES:
        compared_adapters(family, oracle.shapes(family)[4])
