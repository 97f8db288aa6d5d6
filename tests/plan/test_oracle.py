"""The bytes that autograd saves in real models are the bytes that the plan computes from its coefficients."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from accuracy import unknown
from interpreters import OTHERS, ROOT, interpreter

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import coefficients
from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.load import Adapters, Load
from xpc.compiler.plan.memory import memory
from xpc.compiler.registry import find_model, model_names
from xpc.compiler.registry.linear_layers import linear_layers, lora_parameters
from xpc.compiler.stacks import DEFAULT, STACKS
from xpc.compiler.stacks import load as load_stack
from xpc.grammar.record import evolve

SHAPE, RANK = (96, 128, 8, 2, 16, 6, 2), 6
FEW = ("full/bf16/sdpa", "full/bf16/mask", "full/amp/sdpa", "lora-all/amp/sdpa")
"""The modes that the slow tests measure again, each for one family and one shape. The nightly test measures all modes.
"""
SLIDING = ("gemma3_text", "mistral", "phi3", "starcoder2")


def compared(family: str, modes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    oracle = pytest.importorskip("oracle")
    rows = coefficients.family(family)
    agree(family, DEFAULT, oracle.off_by(family, shape, RANK, {mode: rows[mode] for mode in modes}))


def agree(family: str, stack: str, off: dict[str, float]) -> None:
    """Check the error of each mode. It must not exceed the error that the table states for this mode. The stated error
    is rounded to its last digit.
    """
    bounds = coefficients.differences(stack).get(family, {})
    for mode, share in off.items():
        bound = bounds.get(mode)
        assert abs(share) <= (1e-9 if bound is None else (float(bound.rstrip("%")) + 0.005) / 100), (family, mode)


def kept(family: str, shape: tuple[int, ...], window: int, requested: dict[str, object]) -> float:
    """Measure the bytes that one period of the layer pattern saves for the longest row."""
    oracle = pytest.importorskip("oracle")
    ((_, measured),) = oracle.measure(family, shape, RANK, requested, window).items()
    linear, quadratic = oracle.growth(measured)
    return float((linear + quadratic * oracle.LENGTHS[-1]) * oracle.LENGTHS[-1])


def activations(family: str, shape: tuple[int, ...], **changes: object) -> float:
    """Predict with the plan the bytes that one period of the layer pattern saves for the longest row."""
    oracle = pytest.importorskip("oracle")
    known = evolve(oracle.facts(family, shape), **changes.pop("facts", {}))  # type: ignore[arg-type]
    load = Load(
        facts=known, family=family, engine="none", stage=0, world=1, shard=1, offload=0, element=2, weight=2.0,
        amp=False, moments=0.0, temporary=0.0, micro=1, length=oracle.LENGTHS[-1], accumulates=False,
        checkpointing=False, attention="sdpa", loss="fused", trained=float(known.params),
    )  # fmt: skip
    found = memory(evolve(load, **changes))
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
    tuned = Adapters("all", RANK, 0.0, 2, ())
    planned = activations("qwen2", SHAPE, attention=attention, adapters=tuned, trained=0.0)
    assert planned == pytest.approx(kept("qwen2", SHAPE, 1024, {"lora-all/bf16": how}), rel=1e-6)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_dropout_of_adapters_keeps_what_the_plan_says() -> None:
    how = {"lora": ("all", 0.05, True), "autocast": True}
    linear = linear_layers(pytest.importorskip("oracle").facts("qwen2", SHAPE))
    tuned = Adapters("all", RANK, 0.0, 4, linear, 0.05)
    planned = activations("qwen2", SHAPE, adapters=tuned, trained=0.0, amp=True)
    assert planned == pytest.approx(kept("qwen2", SHAPE, 1024, {"lora-all/amp": how}), rel=1e-6)


def test_a_family_without_coefficients_on_a_stack_is_unknown_there() -> None:
    """The plan predicts the memory of a model on a stack if, and only if, the model's family was measured with this
    stack's libraries.

    All families were measured for each stack, except the families that the stack's transformers does not have.
    """
    models = [find_model(name) for name in model_names()]
    known = {one.model_type: one for one in models if one is not None}
    load = Load(
        facts=known["llama"], family="llama", engine="none", stage=0, world=1, shard=1, offload=0, element=2,
        weight=2.0, amp=False, moments=0.0, temporary=0.0, micro=1, length=512, accumulates=False, checkpointing=True,
        attention="sdpa", loss="kept", trained=0.0,
    )  # fmt: skip
    for stack in STACKS:
        measured = coefficients.families(stack)
        for name, model in known.items():
            attention = "eager" if "full/bf16/sdpa" not in measured.get(name, ["full/bf16/sdpa"]) else "sdpa"
            found = unknown(evolve(load, facts=model, family=name, stack=stack, attention=attention))
            assert bool(found) == (name not in measured), (stack, name)
            if measured:  # a new stack may not have been measured yet
                assert (name in measured) == (load_stack(stack).family(name) is not None), (stack, name)
        assert unknown(evolve(load, family="no-family", stack=stack))
    assert unknown(evolve(load, stack="no-stack"))


@pytest.mark.parametrize("attention", ["sdpa", "flash2"])
def test_a_stack_is_planned_with_what_its_own_libraries_keep(attention: str) -> None:
    """With grouped-query attention, transformers 4.52 repeats keys and values for every head before it calls torch's
    own attention; newer versions do not.

    With the repetitions, attention in a layer of Llama 8B saves, per token, 10 bytes for each of the 32 x 128 values of
    the queries. Without the repetitions, it saves 4 bytes for each of these values, and 4 bytes for each of the 8 x 128
    values of the keys.
    """
    kept = {}
    for stack in filter(coefficients.families, STACKS):
        text = (
            f"train llama-3.1-8b-instruct on smoltalk for 1 epochs with zero3 micro=1 gbs=8 seq=4096 "
            f"memory(checkpointing=false) model(attn={attention}) target={stack}"
        )
        report = check_text(text.encode(), "t.xp", Workspace("."))
        assert report.spec is not None, [one.message for one in report.problems]
        load = load_of(report.spec)
        held = memory(load)
        kept[stack] = held.phases["forward"]["activations"]
    assert kept["trl-0.24"] == kept[DEFAULT]  # each of the three stacks is measured
    more = 10 * 32 * 128 - 4 * 32 * 128 - 4 * 8 * 128 if attention == "sdpa" else 0
    assert kept["trl-0.18"] - kept[DEFAULT] == more * 32 * 4096


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


PROGRAM = """
import json, oracle, sys
for family, rows in json.load(sys.stdin).items():
    print(json.dumps([family, oracle.off_by(family, oracle.shapes(family)[4], 6, rows)]))
"""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("stack", OTHERS)
def test_every_family_keeps_what_the_table_of_its_stack_says(stack: str, tmp_path: Path) -> None:
    (tmp_path / "xpc").mkdir()
    for package in ("grammar", "compiler"):
        (tmp_path / "xpc" / package).symlink_to(os.path.join(ROOT, package))
    environment = {**os.environ, "PYTHONPATH": f"{os.path.dirname(__file__)}:{tmp_path}"}
    done = subprocess.run(
        [interpreter(stack), "-c", PROGRAM],
        input=json.dumps(coefficients.families(stack)), env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert found.keys() == coefficients.families(stack).keys()
    for family, off in found.items():
        agree(family, stack, off)
