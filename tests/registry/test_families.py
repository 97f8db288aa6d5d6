"""The family table against the installed libraries: flags, layer classes, liger's list, packed masks by effect."""

import sys

import pytest

from xpc.compiler import registry

pytestmark = pytest.mark.slow

# The libraries load in the tests, not at collection: a fast run of the suite never pays for them.

FAMILIES = registry.families()


def causal_lm(model_type):
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    name = NAMES[model_type]
    return getattr(transformers, name if isinstance(name, str) else name[0])


@pytest.mark.parametrize("model_type", FAMILIES)
def test_flags_are_the_class_attributes(model_type):
    monkey_patch = pytest.importorskip("liger_kernel.transformers.monkey_patch")
    family = registry.find_family(model_type)
    real = causal_lm(model_type)
    assert family.sdpa == real._supports_sdpa
    assert family.flash == real._supports_flash_attn
    assert family.flex == real._supports_flex_attn
    assert family.checkpointing == real.supports_gradient_checkpointing
    assert family.stateful == real._is_stateful
    assert family.liger == (model_type in monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_wrapped_layer_is_a_class_of_the_modeling_module(model_type):
    torch = pytest.importorskip("torch")
    real = causal_lm(model_type)
    module = sys.modules[real.__module__]
    for name in registry.find_family(model_type).layer.split(","):
        assert issubclass(getattr(module, name), torch.nn.Module)
        assert name in real._no_split_modules


# Small configurations: keys that a class does not have are left out, the rest is what it needs to be tiny.
SMALL = {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": 128, "ffn_dim": 128,
    "word_embed_proj_dim": 64, "n_layers": 2, "d_model": 64, "n_heads": 4, "rotary_dim": 8, "num_local_experts": 4,
    "num_experts": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32,
}  # fmt: skip
DEEPSEEK = {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 128, "max_position_embeddings": 128,
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "first_k_dense_replace": 1, "n_routed_experts": 4, "n_group": 1,
    "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
}  # fmt: skip
SPECIAL = {
    "falcon": {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128},
    "gpt_neo": {
        "hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
        "vocab_size": 128, "max_position_embeddings": 128,
    },
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
}  # fmt: skip


def tiny(model_type):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    if model_type in SPECIAL:
        return config_class(**SPECIAL[model_type])
    default = config_class()
    keys = {key: value for key, value in SMALL.items() if hasattr(default, key)}
    if model_type == "exaone4":
        keys |= {"sliding_window": 64, "sliding_window_pattern": 2}
    return config_class(**keys)


def packed_error(model_type, attention):
    """Largest difference of logits between two documents alone and the same two in one row with restarted positions."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = (
        transformers.AutoModelForCausalLM.from_config(tiny(model_type), attn_implementation=attention).eval().float()
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    first, second = torch.randint(3, 120, (1, 7)), torch.randint(3, 120, (1, 9))
    places = [torch.arange(7)[None], torch.arange(9)[None]]

    def logits(ids, position_ids):
        return model(input_ids=ids, position_ids=position_ids, use_cache=False).logits

    with torch.no_grad():
        alone = torch.cat([logits(first, places[0]), logits(second, places[1])], 1)
        packed = logits(torch.cat([first, second], 1), torch.cat(places, 1))
    return (alone - packed).abs().max().item()


MASKED = [name for name in FAMILIES if registry.find_family(name).packing in ("exact", "unaware")]


@pytest.mark.parametrize("model_type", MASKED)
def test_packed_documents_are_apart_exactly_where_the_table_says_so(model_type):
    family = registry.find_family(model_type)
    for attention in ("sdpa", "eager") if family.sdpa else ("eager",):
        error = packed_error(model_type, attention)
        if family.packing == "exact":
            assert error < 1e-4, attention
        else:
            assert error > 0.1, attention


@pytest.mark.parametrize("model_type", ["mamba", "falcon_mamba", "jamba"])
def test_a_recurrent_state_leaks_into_the_next_document(model_type):
    assert registry.find_family(model_type).packing == "stateful"
    assert packed_error(model_type, "eager") > 0.1
