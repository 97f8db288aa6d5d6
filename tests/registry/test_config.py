"""From a model's config.json, the registry computes the number of parameters that the model's publisher states, or
names the key that is missing.
"""

import pytest

from xpc.compiler.registry import find_model
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.config_json import ConfigError

# Parameter counts that the hub shows for the published weights (safetensors metadata, tied weights once).
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "mixtral-8x22b-v0.1": 140_620_634_112,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "gemma-3-270m": 268_098_176,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "smollm3-3b": 3_075_098_624,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-3-medium-4k": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-6b": 6_061_035_520,
    "yi-34b": 34_388_917_248,
    "yi-1.5-9b": 8_829_407_232,
    "qwen1.5-0.5b": 463_987_712,
    "qwen1.5-1.8b": 1_836_828_672,
    "qwen1.5-4b": 3_950_369_280,
    "qwen1.5-7b": 7_721_324_544,
    "qwen1.5-14b": 14_167_290_880,
    "qwen1.5-32b": 32_512_218_112,
    "qwen1.5-72b": 72_287_920_128,
    "deepseek-coder-1.3b": 1_346_471_936,
    "deepseek-coder-6.7b": 6_740_512_768,
    "deepseek-coder-33b": 33_342_991_360,
    "deepseek-llm-7b": 6_910_365_696,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_957_889_024,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "granite-3.3-2b-instruct": 2_533_539_840,
    "granite-3.1-8b-instruct": 8_170_848_256,
    "glm-4-9b": 9_400_279_040,
    "openhermes-2.5-mistral-7b": 7_241_748_480,
}


@pytest.mark.parametrize("alias", PUBLISHED)
def test_the_count_is_the_one_that_was_published(alias):
    facts = find_model(alias)
    assert facts is not None
    assert facts.params == PUBLISHED[alias]


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


def facts(config):
    return facts_from_config(config, "tiny", "models/tiny")


def refusal(config):
    """The reason why the parameters of a configuration cannot be counted."""
    with pytest.raises(ConfigError) as error:
        facts(config)
    return str(error.value)


def test_a_llama_config_has_the_facts_computed_by_hand():
    # One layer: q and o, k and v, three MLP matrices, two norms. Outside: two embeddings, one norm.
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    found = facts(LLAMA)
    assert found.layer_params == layer
    assert found.params == 2 * 256 * 64 + 2 * layer + 64
    assert (found.head_dim, found.kv_heads, found.context, found.dtype) == (16, 2, 512, "float32")
    assert not found.tied
    assert found.gated_mlp
    assert (found.alias, found.id, found.chat, found.gated) == ("tiny", "models/tiny", False, False)


def test_tied_embeddings_are_counted_once():
    assert facts(LLAMA).params - facts({**LLAMA, "tie_word_embeddings": True}).params == 256 * 64


def test_absent_key_value_heads_are_all_heads():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert facts(config).kv_heads == 4


def test_biases_count():
    base = facts(LLAMA).params
    assert facts({**LLAMA, "attention_bias": True}).params - base == 2 * (64 + 2 * 32 + 64)
    assert facts({**LLAMA, "mlp_bias": True}).params - base == 2 * (2 * 128 + 64)
    assert facts({**LLAMA, "model_type": "qwen2"}).params - base == 2 * (64 + 2 * 32)


def test_the_newer_dtype_key_wins_and_none_means_float32():
    assert facts({**LLAMA, "dtype": "bfloat16"}).dtype == "bfloat16"
    assert facts({**LLAMA, "torch_dtype": None}).dtype == "float32"


def test_experts_are_counted_all_and_active():
    found = facts({**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2})
    expert = 3 * 64 * 128
    assert found.experts == 4
    assert found.experts_per_token == 2
    assert found.params - facts({**LLAMA, "model_type": "mistral"}).params == 2 * (3 * expert + 4 * 64)
    assert found.active_params == found.params - 2 * 2 * expert


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"])
def test_a_missing_key_is_named(key):
    config = {k: v for k, v in LLAMA.items() if k != key}
    assert refusal(config) == f"the configuration of this `llama` model has no `{key}`"


def test_a_number_that_is_not_one_is_a_missing_key():
    sentence = "the configuration of this `llama` model has no `vocab_size`"
    assert refusal({**LLAMA, "vocab_size": "many"}) == sentence
    assert refusal({**LLAMA, "vocab_size": True}) == sentence


def test_a_config_without_a_model_type_is_refused():
    assert refusal({}) == "the configuration has no `model_type`"


def test_an_unknown_decoder_with_llamas_keys_is_counted_as_llama():
    assert facts({**LLAMA, "model_type": "brand_new"}).params == facts(LLAMA).params


@pytest.mark.parametrize("key", ["kv_lora_rank", "n_routed_experts", "text_config", "state_size"])
def test_an_unknown_decoder_of_another_shape_is_refused(key):
    found = refusal({**LLAMA, "model_type": "brand_new", key: 8})
    assert f"`{key}`" in found


def test_a_known_decoder_of_another_shape_is_refused():
    found = refusal({**LLAMA, "model_type": "nemotron"})
    assert found == "the sizes of `nemotron` models are not known"


@pytest.mark.parametrize(
    "impossible", [{"num_attention_heads": 0}, {"hidden_size": -64}, {"num_hidden_layers": 0}, {"vocab_size": 0}]
)
def test_dimensions_that_no_model_has_are_refused(impossible):
    found = refusal({**LLAMA, **impossible})
    assert found == f"`{next(iter(impossible))}` must be at least 1 in the configuration of this `llama` model"
