"""Mixtures of experts with latent attention, such as DeepSeek V3. The plan counts layers with experts and layers
without experts separately.
"""

from __future__ import annotations

import pytest

from xpc.compiler.plan.load import Load
from xpc.compiler.plan.memory import memory
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.types import layer_kinds
from xpc.grammar.record import evolve

FAMILIES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
LENGTH = 192


def test_layers_without_experts_are_a_kind_of_their_own() -> None:
    """The first of three layers is dense: its MLP is wider than an expert, and every token passes it."""
    config = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
              "vocab_size": 128, "max_position_embeddings": 64, "moe_intermediate_size": 32, "n_routed_experts": 4,
              "num_experts_per_tok": 2, "n_shared_experts": 2, "first_k_dense_replace": 1}  # fmt: skip
    facts = facts_from_config({"model_type": "deepseek_v3", **config}, "d", "d")
    (one, dense), (two, sparse) = layer_kinds(facts)
    assert (one, dense.experts, dense.intermediate) == (1, 0, 160)
    assert (two, sparse.experts, sparse.intermediate, sparse.shared_width) == (2, 4, 32, 64)
    assert layer_kinds(dense) == ((3, dense),)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_dense_layer_and_one_with_experts_keep_what_the_plan_says(family: str) -> None:
    """The plan is an upper bound: for the dense layer it also counts the inputs of a router."""
    oracle = pytest.importorskip("oracle")
    models = pytest.importorskip("family_models")
    shape = models.shapes(family)[4]
    keys = {**models.config(family, shape, 2), "first_k_dense_replace": 1, "mlp_layer_types": ["dense", "sparse"]}
    facts = facts_from_config(keys, family, family)
    assert [number for number, _ in layer_kinds(facts)] == [1, 1]
    config = models.transformers.AutoConfig.for_model(keys.pop("model_type"), pad_token_id=0, **keys)
    model = models.transformers.AutoModel.from_config(config, attn_implementation="efficient")
    measured = oracle.saved(model.to(models.torch.bfloat16).train(), 0, LENGTH, False, False)
    load = Load(
        facts=facts, family=family, engine="none", stage=0, world=1, shard=1, offload=0, element=2, weight=2.0,
        amp=False, moments=0.0, temporary=0.0, micro=1, length=LENGTH, accumulates=False, checkpointing=False,
        attention="sdpa", loss="fused", trained=float(facts.params),
    )  # fmt: skip
    found, recomputed = memory(load), memory(evolve(load, checkpointing=True))
    planned = found.phases["forward"]["activations"]
    assert measured <= planned < 1.1 * measured
    assert planned / 2 < recomputed.phases["backward"]["recomputation"] < planned
