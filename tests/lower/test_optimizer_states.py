"""The compiler computes how many bytes an optimizer's states take in a checkpoint."""

from __future__ import annotations

from case_support import spec
from compile_support import checked

from xpc.compiler.lower.optimizer_states import OF_BLOCK, optimizer_states
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
