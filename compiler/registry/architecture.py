"""Compute exact facts from a Hugging Face `config.json`: one closed form of the parameter count per model family.

The forms are checked against the real modules of transformers 5.23 on the meta device (tests/registry/test_meta.py).
They write `q = heads * head_dim`, `kv = kv_heads * head_dim`, `h` for hidden, `i` for intermediate.
"""

from collections.abc import Callable, Mapping, Sequence

from xpc.compiler.registry.config_json import Config, ConfigError
from xpc.compiler.registry.types import IMAGE_FAMILIES, Decoder, ModelFacts
from xpc.compiler.registry.windows import window, windowed
from xpc.grammar.record import evolve, fields, record

# Keys of decoders that differ from Llama: the generic form must not be used for them.
_FOREIGN_KEYS = (
    "kv_lora_rank", "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size", "state_size",
    "ssm_cfg", "mamba_d_state", "conv_kernel", "linear_num_key_heads", "layer_types", "vision_config", "text_config",
    "encoder_layers", "num_decoder_layers", "cross_attention_layers", "block_configs", "hidden_size_per_layer_input",
)  # fmt: skip

# Causal language models of transformers 5.23 whose configuration has, or may have, Llama's keys, but whose layers
# differ (another norm, no gate, more biases): there is no closed form here, and the generic one would be wrong.
_OTHER_SHAPES = frozenset(
    (
        "aria_text", "bert", "bert-generation", "big_bird", "biogpt", "bitnet", "bloom", "blt", "camembert",
        "codegen", "cpmant", "ctrl", "data2vec-text", "dbrx", "diffllama", "electra", "ernie", "gpt-sw3", "gpt_neo",
        "gpt_neox_japanese", "gptj", "hrm_text", "hyperclovax", "jais2", "megatron-bert", "moshi", "mpt", "musicgen",
        "musicgen_melody", "nanochat", "nemotron", "olmo", "openai-gpt", "persimmon", "phi", "recurrent_gemma",
        "reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "rwkv",
        "stablelm", "trocr", "xglm", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xlstm", "xmod",
    )
)  # fmt: skip


@record
class _Shape(Decoder):
    """A decoder, and the parameters outside its layers."""

    outside: int = 0
    expert: int = 0
    """The number of parameters of one expert."""
    dense_layers: int = 0
    dense_layer: int = 0
    """The number of layers that have a plain MLP in a mixture of experts, and the parameters of one of them."""

    @property
    def q(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        return self.kv_heads * self.head_dim


def _dimensions(c: Config, tied: bool = False, head_dim: int | None = None) -> _Shape:
    s = _other_dimensions(c, ("intermediate_size",), tied=tied)
    kv_heads = c.integer("num_key_value_heads", default=s.heads)
    return evolve(s, gated_mlp=True, kv_heads=kv_heads, head_dim=c.integer("head_dim", default=head_dim or s.head_dim))


def _other_dimensions(
    c: Config, intermediate: Sequence[str], *, tied: bool = True, times: int | None = None, context: int | None = None
) -> _Shape:
    """The dimensions of families older than Llama: an MLP without a gate, keys and values for each head, other names of
    keys.

    The width of the MLP is the value of the first key in `intermediate` that exists, otherwise `times` the model's
    width; `context` is the default context.
    """
    hidden = c.integer("hidden_size", "n_embd")
    heads = c.integer("num_attention_heads", "n_head")
    return _Shape(
        layers=c.integer("num_hidden_layers", "n_layer"),
        hidden=hidden,
        intermediate=c.integer(*intermediate, default=times and times * hidden),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=c.integer("vocab_size"),
        context=c.integer("max_position_embeddings", "n_positions", default=context),
        tied=c.flag("tie_word_embeddings", tied),
        gated_mlp=False,
    )


def _attention(s: _Shape, qkv_bias: bool = False, out_bias: bool = False) -> int:
    weights = 2 * s.hidden * s.q + 2 * s.hidden * s.kv
    return weights + (s.q + 2 * s.kv) * qkv_bias + s.hidden * out_bias


def _mlp(s: _Shape, bias: bool = False) -> int:
    matrices = 3 if s.gated_mlp else 2
    return matrices * s.hidden * s.intermediate + (s.intermediate * (matrices - 1) + s.hidden) * bias


def _embeddings(s: _Shape) -> int:
    return s.vocab * s.hidden * (1 if s.tied else 2)


def _llama(
    c: Config, *, tied: bool = False, norms: int = 2, mlp_bias: bool = True, head_dim: int | None = None
) -> _Shape:
    """Llama: RMSNorm, a gated MLP, and one switch for all four attention biases."""
    s = _dimensions(c, tied, head_dim)
    bias = c.flag("attention_bias", False)
    layer = _attention(s, bias, bias) + _mlp(s, mlp_bias and c.flag("mlp_bias", False)) + norms * s.hidden
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.hidden)


def _plain(c: Config) -> _Shape:
    """Mistral and Phi-3: Llama without any bias. Phi-3 fuses matrices, which does not change the count."""
    s = _dimensions(c)
    return evolve(s, layer_params=_attention(s) + _mlp(s) + 2 * s.hidden, outside=_embeddings(s) + s.hidden)


def _qwen2(c: Config) -> _Shape:
    """Qwen2: biases on q, k and v, but not on the output."""
    s = _dimensions(c)
    return evolve(
        s, layer_params=_attention(s, qkv_bias=True) + _mlp(s) + 2 * s.hidden, outside=_embeddings(s) + s.hidden
    )


def _qwen3(c: Config, head_dim: int | None = 128) -> _Shape:
    """Qwen3: norms on q and k that are as wide as one head."""
    s = _llama(c, mlp_bias=False, head_dim=head_dim)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _gemma(c: Config) -> _Shape:
    return _llama(c, tied=True, mlp_bias=False, head_dim=256)


def _gemma2(c: Config) -> _Shape:
    """Gemma 2: norms before and after attention and MLP."""
    return _llama(c, tied=True, norms=4, mlp_bias=False, head_dim=256)


def _gemma3(c: Config) -> _Shape:
    s = _gemma2(c)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _olmo2(c: Config) -> _Shape:
    """OLMo 2: norms over the full width of q and of k."""
    s = _llama(c, mlp_bias=False)
    return evolve(s, layer_params=s.layer_params + s.q + s.kv)


def _glm(c: Config, norms: int = 2) -> _Shape:
    s = _dimensions(c, head_dim=128)
    layer = _attention(s, qkv_bias=c.flag("attention_bias", True)) + _mlp(s) + norms * s.hidden
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.hidden)


def _experts(
    s: _Shape, layer_without_mlp: int, per_token: int, experts: int, dense_layers: int = 0, dense: int = 0
) -> _Shape:
    """Replace the MLP by `experts` MLPs and a router without bias."""
    expert = _mlp(s)
    return evolve(
        s,
        layer_params=layer_without_mlp + experts * expert + experts * s.hidden,
        experts=experts,
        experts_per_token=min(per_token, experts),
        expert=expert,
        dense_layers=dense_layers,
        dense_layer=layer_without_mlp + dense,
    )


def _mixtral(c: Config) -> _Shape:
    s = _plain(c)
    per_token = c.integer("num_experts_per_tok", default=2)
    return _experts(s, s.layer_params - _mlp(s), per_token, c.integer("num_local_experts", "num_experts"))


def _qwen3_moe(c: Config) -> _Shape:
    s = _qwen3(c, head_dim=None)
    without = s.layer_params - _mlp(s)
    dense = _mlp(s)
    s = evolve(s, intermediate=c.integer("moe_intermediate_size"))
    experts = c.integer("num_experts", "num_local_experts")
    step = c.integer("decoder_sparse_step", default=1)
    listed = c.values.get("mlp_only_layers")
    only = {n for n in listed if isinstance(n, int) and 0 <= n < s.layers} if isinstance(listed, list) else set()
    # every step-th layer, except the listed ones
    sparse = s.layers // step - sum(1 for n in only if (n + 1) % step == 0)
    plain = s.layers - (sparse if experts else 0)
    return _experts(s, without, c.integer("num_experts_per_tok", default=8), experts, plain, dense)


def _apertus(c: Config) -> _Shape:
    """Apertus: norms of q and k that are as wide as one head, and an MLP without a gate. Its activation xIELU has two
    trained numbers; one switch adds the four attention biases.
    """
    s = evolve(_dimensions(c), gated_mlp=False)
    bias = c.flag("attention_bias", False)
    numbers = 2 if c.text("hidden_act") in (None, "xielu") else 0
    layer = _attention(s, bias, bias) + _mlp(s) + 2 * s.hidden + 2 * s.head_dim + numbers
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.hidden)


def _arcee(c: Config) -> _Shape:
    """Arcee: Llama without the MLP's gate."""
    s = evolve(_dimensions(c), gated_mlp=False)
    bias = c.flag("attention_bias", False)
    layer = _attention(s, bias, bias) + _mlp(s, c.flag("mlp_bias", False)) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.hidden)


def _ernie(c: Config) -> _Shape:
    """ERNIE 4.5: Llama with one switch for every bias."""
    s = _dimensions(c, tied=True, head_dim=128)
    bias = c.flag("use_bias", False)
    layer = _attention(s, bias, bias) + _mlp(s, bias) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.hidden)


def _exaone4(c: Config) -> _Shape:
    """EXAONE 4: norms after attention and MLP, and norms of q and k that are as wide as one head."""
    s = _plain(c)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _hunyuan(c: Config) -> _Shape:
    """Hunyuan: Llama with norms of q and k that are as wide as one head."""
    s = _llama(c, mlp_bias=False)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _seed_oss(c: Config) -> _Shape:
    """Seed-OSS: Llama with one switch for the biases of q, k and v and another for that of the output."""
    s = _dimensions(c, head_dim=128)
    attention = _attention(s, c.flag("attention_bias", True), c.flag("attention_out_bias", False))
    layer = attention + _mlp(s, c.flag("mlp_bias", False)) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.hidden)


def _starcoder2(c: Config) -> _Shape:
    """Starcoder2: LayerNorms with bias, two MLP matrices, and one switch for all biases."""
    s = evolve(_dimensions(c, tied=True), gated_mlp=False)
    bias = c.flag("use_bias", True)
    return evolve(
        s, layer_params=_attention(s, bias, bias) + _mlp(s, bias) + 4 * s.hidden, outside=_embeddings(s) + 2 * s.hidden
    )


def _gpt2(c: Config) -> _Shape:
    s = _other_dimensions(c, ("n_inner",), times=4)
    layer = _attention(s, True, True) + _mlp(s, True) + 4 * s.hidden
    return evolve(s, layer_params=layer, outside=_embeddings(s) + s.context * s.hidden + 2 * s.hidden)


def _gpt_bigcode(c: Config) -> _Shape:
    """GPT-BigCode: GPT-2 with a single key and value head, unless `multi_query` is off."""
    s = _gpt2(c)
    s = evolve(s, kv_heads=1 if c.flag("multi_query", True) else s.heads)
    return evolve(s, layer_params=_attention(s, True, True) + _mlp(s, True) + 4 * s.hidden)


def _cohere(c: Config) -> _Shape:
    """Cohere: one norm for attention and MLP, which run in parallel; a switch adds norms of q and k."""
    s = _llama(c, tied=True, norms=1, mlp_bias=False)
    return evolve(s, layer_params=s.layer_params + (s.q + s.kv) * c.flag("use_qk_norm", False))


def _gpt_oss(c: Config) -> _Shape:
    """gpt-oss: a sink for each head; biases on projections, router and experts."""
    s = _dimensions(c, head_dim=64)
    bias = c.flag("attention_bias", True)
    without = _attention(s, bias, bias) + s.heads + 2 * s.hidden
    experts = c.integer("num_local_experts", default=128)
    s = evolve(s, outside=_embeddings(s) + s.hidden)
    s = _experts(s, without, c.integer("num_experts_per_tok", default=4), experts)
    biases = 2 * s.intermediate + s.hidden
    return evolve(s, layer_params=s.layer_params + experts * (biases + 1), expert=s.expert + biases)


def _gpt_neox(c: Config) -> _Shape:
    """GPT-NeoX: all heads have keys and values; `num_key_value_heads` is ignored."""
    s = _dimensions(c)
    s = evolve(s, gated_mlp=False, kv_heads=s.heads, head_dim=s.hidden // s.heads)
    bias = c.flag("attention_bias", True)
    return evolve(
        s, layer_params=_attention(s, bias, bias) + _mlp(s, True) + 4 * s.hidden, outside=_embeddings(s) + 2 * s.hidden
    )


def _opt(c: Config) -> _Shape:
    """OPT: learned positions (two more than the context), and projections if the embedding is narrower than
    the model.
    """
    s = _other_dimensions(c, ("ffn_dim",))
    hidden = s.hidden
    bias, norm = c.flag("enable_bias", True), 2 * hidden * c.flag("layer_norm_elementwise_affine", True)
    width = c.integer("word_embed_proj_dim", default=hidden)
    outside = s.vocab * width * (1 if s.tied else 2) + (s.context + 2) * hidden + 2 * width * hidden * (width != hidden)
    final = c.flag("do_layer_norm_before", True) and not c.flag("_remove_final_layer_norm", False)
    return evolve(s, layer_params=_attention(s, bias, bias) + _mlp(s, bias) + 2 * norm, outside=outside + norm * final)


def _falcon(c: Config) -> _Shape:
    """Falcon: a single key and value head (7B), groups of heads and two norms (40B), or a key and value head for each
    head (RW).
    """
    s = _other_dimensions(c, ("ffn_hidden_size",), times=4, context=2048)
    new = c.flag("new_decoder_architecture", False)
    one = 1 if c.flag("multi_query", True) else s.heads
    s = evolve(s, kv_heads=c.integer("num_kv_heads", default=s.heads) if new else one)
    bias = c.flag("bias", False)
    two = c.integer("num_ln_in_parallel_attn", default=2) == 2 if new else not c.flag("parallel_attn", True)
    layer = _attention(s, bias, bias) + _mlp(s, bias) + 2 * s.hidden * (2 if two else 1)
    return evolve(s, layer_params=layer, outside=_embeddings(s) + 2 * s.hidden)


def _qwen2_5_vl(c: Config) -> _Shape:
    """Qwen2.5-VL: a Qwen2, and a part that reads images. That part has an embedding of patches without a bias, blocks
    with a gated MLP and biases everywhere, and a projection of merged patches to the width of the language model.
    """
    s = _qwen2(c)
    found = c.values.get("vision_config")
    v = Config(found if isinstance(found, Mapping) else {}, c.model_type)
    h, i = v.integer("hidden_size"), v.integer("intermediate_size")
    patch = v.integer("patch_size", default=14) ** 2 * v.integer("temporal_patch_size", default=2)
    merged = h * v.integer("spatial_merge_size", default=2) ** 2
    out = v.integer("out_hidden_size", default=s.hidden)
    block = 2 * h + (3 * h * h + 3 * h) + (h * h + h) + 2 * (h * i + i) + (i * h + h)
    tower = v.integer("in_channels", default=3) * patch * h + v.integer("depth", default=32) * block
    projection = h + merged * merged + merged + merged * out + out
    return evolve(s, outside=s.outside + tower + projection)


_FAMILIES: dict[str, Callable[[Config], _Shape]] = {
    "apertus": _apertus,
    "arcee": _arcee,
    "cohere": _cohere,
    "cohere2": lambda c: _llama(c, tied=True, norms=1, mlp_bias=False),
    "cwm": _plain,
    "ernie4_5": _ernie,
    "exaone4": _exaone4,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "glm": _glm,
    "glm4": lambda c: _glm(c, norms=4),
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "granite": _llama,
    "hunyuan_v1_dense": _hunyuan,
    "llama": _llama,
    "mistral": _plain,
    "mixtral": _mixtral,
    "olmo2": _olmo2,
    "olmo3": _olmo2,
    "opt": _opt,
    "phi3": _plain,
    "qwen2": _qwen2,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "seed_oss": _seed_oss,
    "smollm3": lambda c: _llama(c, tied=True),
    "starcoder2": _starcoder2,
}


def uncounted(config: Mapping[str, object]) -> str | None:
    """The reason why the parameters of a configuration cannot be counted, or None if there is a formula for them."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type in _FAMILIES:
        return None
    if model_type in _OTHER_SHAPES:
        return f"`{model_type}` models are not counted here"
    foreign = [key for key in _FOREIGN_KEYS if config.get(key)]
    if not foreign:
        return None
    return f"`{model_type}` models are not counted here: `{foreign[0]}` means another shape than Llama's"


def _flat(config: Mapping[str, object]) -> Mapping[str, object]:
    """The configuration of a model that reads images, with the keys of its language model at the top, where published
    files have them; transformers 5 saves them under `text_config`.
    """
    text = config.get("text_config")
    if config.get("model_type") not in IMAGE_FAMILIES or not isinstance(text, Mapping):
        return config
    tied = any(one.get("tie_word_embeddings") is True for one in (config, text))
    return {**config, **text, "model_type": config["model_type"], "tie_word_embeddings": tied}


def facts_from_config(
    config: Mapping[str, object], alias: str, id: str, *, chat: bool = False, gated: bool = False
) -> ModelFacts | str:
    """Read a Hugging Face `config.json` and compute the exact parameter count from it.

    A `model_type` without a closed form counts as a Llama-shaped decoder if its configuration has all of Llama's keys
    and no key of another shape. `chat` and `gated` are not in a config.json. Returns a sentence about what is missing
    if the facts cannot be known.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return "the configuration has no `model_type`"
    why = uncounted(config)
    if why is not None:
        return why
    config = _flat(config)
    form = _FAMILIES.get(model_type, _llama)
    reader = Config(config, model_type)
    try:
        s = form(reader)
    except ConfigError as error:
        return str(error)
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
