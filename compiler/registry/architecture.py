"""Compute a model's sizes and exact parameter count from its Hugging Face `config.json`."""

from collections.abc import Mapping

from xpc.compiler.registry.config_json import Config, ConfigError
from xpc.compiler.registry.latent_attention import LATENT
from xpc.compiler.registry.parameter_counts import FAMILIES, llama
from xpc.compiler.registry.types import IMAGE_FAMILIES, Decoder, ModelFacts
from xpc.compiler.registry.windows import window, windowed
from xpc.grammar.record import fields

# Keys that the configuration of a Llama-like model never has. If a configuration has one of them, Llama's formula must
# not be used.
_FOREIGN_KEYS = (
    "kv_lora_rank", "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size", "state_size",
    "ssm_cfg", "mamba_d_state", "conv_kernel", "linear_num_key_heads", "layer_types", "vision_config", "text_config",
    "encoder_layers", "num_decoder_layers", "cross_attention_layers", "block_configs", "hidden_size_per_layer_input",
)  # fmt: skip

# Families of transformers 5.23 whose configuration may have all keys of Llama's, although their layers are different
# (another norm, no gate, more biases). xpc has no formula for them, and Llama's formula would give a wrong number.
_OTHER_SHAPES = frozenset(
    (
        "aria_text", "bert", "bert-generation", "big_bird", "biogpt", "bitnet", "bloom", "blt", "camembert",
        "codegen", "cpmant", "ctrl", "data2vec-text", "dbrx", "diffllama", "electra", "ernie", "gpt-sw3", "gpt_neo",
        "gpt_neox_japanese", "gptj", "hrm_text", "jais2", "megatron-bert", "moshi", "mpt", "musicgen",
        "musicgen_melody", "nanochat", "nemotron", "olmo", "openai-gpt", "persimmon", "phi", "recurrent_gemma",
        "reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "rwkv",
        "stablelm", "trocr", "xglm", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xlstm", "xmod",
    )
)  # fmt: skip


def uncounted(config: Mapping[str, object]) -> str | None:
    """The reason why the parameters of a model with this configuration cannot be counted. None if xpc has a formula for
    them.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type in FAMILIES or model_type in LATENT:
        return None
    if model_type in _OTHER_SHAPES:
        return f"the sizes of `{model_type}` models are not known"
    foreign = [key for key in _FOREIGN_KEYS if config.get(key)]
    if not foreign:
        return None
    return f"the sizes of `{model_type}` models are not known: `{foreign[0]}` means another shape than Llama's"


def _flat(config: Mapping[str, object]) -> Mapping[str, object]:
    """Move the keys under `text_config` to the top level. For a model that reads images, transformers 5 saves the keys
    of the language model under `text_config`; older versions save them at the top level.
    """
    text = config.get("text_config")
    if config.get("model_type") not in IMAGE_FAMILIES or not isinstance(text, Mapping):
        return config
    tied = any(one.get("tie_word_embeddings") is True for one in (config, text))
    return {**config, **text, "model_type": config["model_type"], "tie_word_embeddings": tied}


def facts_from_config(
    config: Mapping[str, object], alias: str, id: str, *, chat: bool = False, gated: bool = False
) -> ModelFacts:
    """Read a Hugging Face `config.json` and compute the exact parameter count from it.

    For a `model_type` without a formula of its own, Llama's formula is used if the configuration has all of Llama's
    keys and no key of another architecture. The arguments `chat` and `gated` are facts that a config.json does not
    contain. Raises ConfigError, with the reason as a sentence, if the parameters cannot be counted.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError("the configuration has no `model_type`")
    why = uncounted(config)
    if why is not None:
        raise ConfigError(why)
    config = _flat(config)
    form = FAMILIES.get(model_type) or LATENT.get(model_type, llama)
    reader = Config(config, model_type)
    s = form(reader)
    params = s.layer_params * (s.layers - s.dense_layers) + s.dense_layer * s.dense_layers + s.outside
    tokens, sliding = window(config)
    idle = s.expert * (s.experts - s.experts_per_token) * (s.layers - s.dense_layers)
    return ModelFacts(
        alias=alias,
        id=id,
        model_type=model_type,
        params=params,
        **{name: getattr(s, name) for name in fields(Decoder)},
        dtype=reader.text("dtype") or reader.text("torch_dtype") or "float32",
        chat=chat,
        gated=gated,
        active_params=params - idle if s.experts else None,
        windowed=windowed(config),
        window=tokens,
        window_layers=sliding,
    )
