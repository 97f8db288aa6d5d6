"""The compiler computes how many bytes an optimizer's states take in memory and in a checkpoint."""

from __future__ import annotations

import pytest
from case_support import spec
from compile_support import checked

from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.memory import memory
from xpc.compiler.plan.optimizer_states import OF_BLOCK, optimizer_states
from xpc.compiler.registry.linear_layers import linear_layers, lora_parameters


def test_small_matrices_of_adapters_have_states_of_32_bits() -> None:
    found = checked(
        spec("lora(rank=1)", "optimizer adamw8bit", strategy="ddp", train="qwen2.5-0.5b on infinity-instruct")
    )
    assert found.spec is not None
    facts = found.spec.model.facts
    assert facts is not None
    matrices = [size for one in linear_layers(facts) for size in (one.inputs, one.outputs) * one.count]
    small = facts.layers * sum(size for size in matrices if size < 4096)
    trained = lora_parameters(facts, 1, linear_layers(facts))
    assert 0 < small < trained == facts.layers * sum(matrices)
    assert optimizer_states(found.spec, facts, trained, 4) == int(2 * (small * 4 + (trained - small) * OF_BLOCK))


@pytest.mark.parametrize("name", [
    "adamw8bit", "lion8bit", "ademamix8bit", "lion", "rmsprop(momentum=0.9)", "torchao_adamw4bit", "muon",
    "galore_adamw(targets=all-linear)", "galore_adafactor(targets=all-linear)", "apollo_adamw(targets=all-linear)",
])  # fmt: skip
def test_the_plan_counts_the_states_that_a_checkpoint_has(name: str) -> None:
    """tests/proof/training/test_checkpoint_sizes.py compares the bytes in a checkpoint with real checkpoints."""
    found = checked(spec(f"optimizer {name}", strategy="ddp", train="qwen2.5-0.5b on infinity-instruct")).spec
    assert found is not None
    facts = found.model.facts
    assert facts is not None
    written = optimizer_states(found, facts, facts.params, 4)
    assert 0 < written < 12 * facts.params
    assert memory(load_of(found)).phases["step"]["optimizer"] == pytest.approx(written, rel=1e-6)
