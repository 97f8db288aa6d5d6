"""The compiler computes how many bytes an optimizer's states take in memory and in a checkpoint."""

from __future__ import annotations

import pytest
from case_support import spec
from compile_support import checked

from xpc.compiler.plan.from_spec import adapters_of, load_of
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


ONE_LAYER = 8 * (896 + 896)
MLP = 3 * 896 * 4864


@pytest.mark.parametrize(("adapters", "trained"), [
    ("lora(rank=8, targets=[q_proj])", 24 * ONE_LAYER),
    ("lora(rank=8, targets=[layers.20.self_attn.q_proj])", ONE_LAYER),
    ("lora(rank=8, targets=[q_proj], within=layers.20)", ONE_LAYER),
    ("lora(rank=8, targets=[layers.3.self_attn.q_proj, layers.20.self_attn.q_proj])", 2 * ONE_LAYER),
    ("lora(rank=8, targets=[layers.20.self_attn.q_proj, q_proj])", 24 * ONE_LAYER),
    ("lora(rank=8, targets=[q_proj], parameters=[layers.20.self_attn.o_proj.weight])", 25 * ONE_LAYER),
    ("lora(rank=8, targets=[q_proj], modules_to_save=[layers.20.mlp])", 24 * ONE_LAYER + MLP),
    ("lora(rank=8, targets=[q_proj], modules_to_save=[mlp])", 24 * (ONE_LAYER + MLP)),
    ("lora(rank=8, targets=[q_proj], modules_to_save=[layers.3.mlp.up_proj])", 24 * ONE_LAYER + MLP // 3),
    ("lora(rank=8, targets=[q_proj], modules_to_save=[norm])", 24 * ONE_LAYER),
    ("vera(rank=8, targets=[layers.20.self_attn.q_proj])", 8 + 896),
    ("oft(block_size=8, targets=[layers.20.self_attn.q_proj])", 896 // 8 * 28),
    ("loha(rank=8, targets=[layers.20.self_attn.q_proj])", 2 * ONE_LAYER),
    ("miss(rank=8, targets=[q_proj], within=layers.20)", 8 * 896),
])  # fmt: skip
def test_adapters_of_one_layer_are_not_counted_in_every_layer(adapters: str, trained: int) -> None:
    """tests/plan/test_adapters_kept.py compares the numbers with the adapters that peft makes."""
    found = checked(spec(adapters, strategy="ddp", train="qwen2.5-0.5b on infinity-instruct")).spec
    assert found is not None
    assert adapters_of(found, 4).params == trained
    load = load_of(found)
    assert load.at_most or trained >= 24 * ONE_LAYER
    assert memory(load).phases["step"]["optimizer"] == pytest.approx(8 * trained, rel=1e-6)


@pytest.mark.parametrize(("stack", "adapters", "share"), [
    ("trl-1.16", "parameters=[layers.20.mlp.experts.down_proj]", 1 / 48),
    ("trl-1.16", "parameters=[mlp.experts.down_proj]", 1),
    ("trl-0.18", "targets=[layers.20.mlp.experts.3.down_proj]", 1 / 48 / 128),
])  # fmt: skip
def test_adapters_of_the_experts_of_one_layer_are_not_counted_in_every_layer(
    stack: str, adapters: str, share: float
) -> None:
    targets = "" if "targets" in adapters else "targets=[q_proj], "
    text = spec(f"lora(rank=8, {targets}{adapters})", strategy="ddp", train="qwen3-30b-a3b on infinity-instruct")
    found = checked(f"{text}target {stack}\n", allow_oom=True).spec
    assert found is not None
    attention = 0 if not targets else 48 * 8 * (2048 + 4096)
    assert adapters_of(found, 4).params == attention + share * 48 * 128 * 8 * (2048 + 768)
