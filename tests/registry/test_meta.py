"""For each model, the registry's number of parameters equals the number in the model that transformers builds on the
meta device.
"""

from contextlib import suppress

import pytest

from xpc.compiler.registry import build
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.config_json import ConfigError
from xpc.compiler.registry.types import IMAGE_FAMILIES

pytestmark = pytest.mark.slow

# The tests themselves import the libraries. So the fast tier, which only collects this file, does not import them.

MODELS = build.read("models.toml")


def real_parameters(config):
    """Count the parameters of the model that transformers builds. Tied weights count once."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    keys = {key: value for key, value in config.items() if key not in ("model_type", "torch_dtype", "dtype")}
    with torch.device("meta"):
        hf_config = transformers.AutoConfig.for_model(config["model_type"], pad_token_id=0, **keys)
        pictured = config["model_type"] in IMAGE_FAMILIES
        maker = transformers.AutoModelForImageTextToText if pictured else transformers.AutoModelForCausalLM
        model = maker.from_config(hf_config)
    model.tie_weights()
    return sum(p.numel() for p in model.parameters())


@pytest.fixture(scope="module")
def counts():
    """An empty mapping, in which the tests keep the number of parameters of each configuration. Many models have the
    same configuration, so each is counted only once.
    """
    return {}


@pytest.mark.parametrize("alias", MODELS)
def test_the_closed_form_counts_what_the_module_holds(alias, counts):
    config = build.model_config(MODELS, alias)
    key = tuple(sorted((k, str(v)) for k, v in config.items() if k != "torch_dtype"))
    if key not in counts:
        counts[key] = real_parameters(config)
    facts = facts_from_config(config, alias, MODELS[alias]["id"])
    assert facts.params == counts[key]


TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
# Configuration switches that the formulas read, and that no published model of the registry uses.
SWITCHES = [
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    {"model_type": "smollm3", "attention_bias": True, "mlp_bias": True},
    {"model_type": "granite", "attention_bias": True, "mlp_bias": True},
    {"model_type": "qwen3", "attention_bias": True, "head_dim": 32},
    {"model_type": "gemma", "attention_bias": True, "head_dim": 32},
    {"model_type": "gemma2", "attention_bias": True, "head_dim": 32},
    {"model_type": "gemma3_text", "attention_bias": True, "head_dim": 32},
    {"model_type": "olmo2", "attention_bias": True},
    {"model_type": "starcoder2", "use_bias": False},
    {"model_type": "gpt_neox", "attention_bias": False, "tie_word_embeddings": True},
    {"model_type": "gpt2", "n_inner": 80, "tie_word_embeddings": False},
    {"model_type": "gpt_bigcode"},
    {"model_type": "gpt_bigcode", "n_inner": 80, "multi_query": False, "tie_word_embeddings": False},
    {"model_type": "cohere"},
    {"model_type": "cohere", "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False},
    {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2},
    {"model_type": "gpt_oss", "num_local_experts": 4, "attention_bias": False, "head_dim": 16},
    {"model_type": "opt", "ffn_dim": 96, "enable_bias": False, "layer_norm_elementwise_affine": False},
    {"model_type": "opt", "ffn_dim": 96, "_remove_final_layer_norm": True, "word_embed_proj_dim": 32},
    {"model_type": "falcon", "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
    {"model_type": "falcon", "multi_query": False, "parallel_attn": True, "bias": True},
    {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    {"model_type": "qwen3_moe", "moe_intermediate_size": 32, "num_experts": 4, "mlp_only_layers": [0]},
    {"model_type": "qwen3_moe", "moe_intermediate_size": 32, "num_experts": 4, "decoder_sparse_step": 2},
    {"model_type": "mixtral", "num_local_experts": 3, "head_dim": 32},
    {"model_type": "apertus"},
    {"model_type": "apertus", "attention_bias": True, "hidden_act": "relu2"},
    {"model_type": "arcee", "attention_bias": True, "mlp_bias": True, "head_dim": 32},
    {"model_type": "cohere2", "attention_bias": True},
    {"model_type": "cwm", "head_dim": 16},
    {"model_type": "ernie4_5", "use_bias": True},
    {"model_type": "exaone4", "head_dim": 32},
    {"model_type": "hunyuan_v1_dense", "attention_bias": True, "head_dim": 32},
    {"model_type": "hyperclovax"},
    {"model_type": "hyperclovax", "use_post_norm": False, "attention_bias": True, "mlp_bias": True, "head_dim": 32},
    {"model_type": "iquestcoder", "attention_bias": True, "head_dim": 32},
    {"model_type": "ministral3", "head_dim": 32, "tie_word_embeddings": True},
    {"model_type": "olmo3", "attention_bias": True},
    {"model_type": "seed_oss", "attention_out_bias": True, "mlp_bias": True, "head_dim": 16},
    {"model_type": "seed_oss", "attention_bias": False, "head_dim": 16, "tie_word_embeddings": True},
    {"model_type": "glm", "attention_bias": False, "head_dim": 16},
    {"model_type": "glm4", "attention_bias": True, "head_dim": 16, "tie_word_embeddings": True},
]


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda s: str(s["model_type"]))
def test_a_switch_of_the_closed_form_counts_what_the_module_holds(switch):
    config = {**TINY, **switch}
    if config["model_type"] in ("gpt2", "gpt_bigcode"):
        config = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": 128, **switch}
    if config["model_type"] == "falcon":
        config = {k: v for k, v in config.items() if k not in ("num_key_value_heads", "intermediate_size")}
    facts = facts_from_config(config, "tiny", "models/tiny")
    assert facts.params == real_parameters(config)


def test_no_model_type_of_transformers_is_counted_wrongly():
    """For each model type that is not in the registry, the registry computes the right number of parameters from a
    config.json with all keys, or says that it does not know the number.
    """
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    # tests above cover the registry's own models and gpt_bigcode
    known = {build.model_config(MODELS, alias)["model_type"] for alias in MODELS} | {"gpt_bigcode"}
    # the default configurations of these two model types are invalid
    known |= {"gemma4_assistant", "hunyuan_v1_dense"}
    # the default of minicpm3's `v_head_dim` follows from other sizes (test_latent_counts.py)
    known |= {"minicpm3"}
    counted = 0
    for model_type in sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - known):
        saved = CONFIG_MAPPING[model_type]().to_dict()
        sizes = {**TINY, "tie_word_embeddings": False, **({"head_dim": 16} if saved.get("head_dim") else {})}
        with suppress(ConfigError):
            facts = facts_from_config({**saved, **sizes, "model_type": model_type}, "tiny", "models/tiny")
            counted += 1
            assert facts.params == real_parameters({**sizes, "model_type": model_type}), model_type
    # The generic formula covers some of these model types, such as ernie4_5, helium and internlm3.
    assert counted >= 5


@pytest.mark.parametrize("model_type", sorted({build.model_config(MODELS, alias)["model_type"] for alias in MODELS}))
def test_an_absent_tie_word_embeddings_means_what_the_class_means(model_type):
    """If config.json has no `tie_word_embeddings`, the default of the model class applies, because a saved config.json
    leaves out defaults.
    """
    transformers = pytest.importorskip("transformers")
    config = {**TINY, "ffn_dim": 96, "moe_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4,
              "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "model_type": model_type}  # fmt: skip
    if model_type in IMAGE_FAMILIES:
        config["vision_config"] = {"hidden_size": 32, "intermediate_size": 64, "depth": 2}
    facts = facts_from_config(config, "tiny", "models/tiny")
    assert facts.tied == transformers.AutoConfig.for_model(model_type).tie_word_embeddings
