"""The number of parameters of a model, from its `config.json`: one formula per family.

tests/registry/test_meta.py compares the formulas with the modules of transformers 5.23 on the meta device. In the
formulas, `q = heads * head_dim`, `kv = kv_heads * head_dim`, `h` is the hidden size and `i` the intermediate size.
"""

from collections.abc import Callable, Mapping, Sequence

from xpc.compiler.registry.config_json import Config
from xpc.compiler.registry.types import Decoder
from xpc.grammar.record import evolve, record


@record
class Shape(Decoder):
    """The dimensions of a decoder, and the numbers of parameters that do not follow from them."""

    outside: int = 0
    """The number of parameters outside of the layers: embeddings, head, last norm, image tower."""
    expert: int = 0
    """The number of parameters of one expert."""
    dense_layer: int = 0
    """For a mixture of experts that also has layers with a plain MLP: the number of parameters of such a layer."""

    @property
    def q(self) -> int:
        """The width of the query projection's output."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """The width of the outputs of the key projection and of the value projection, which are equally wide."""
        return self.kv_heads * self.head_dim


def _dimensions(c: Config, tied: bool = False, head_dim: int | None = None) -> Shape:
    s = other_dimensions(c, ("intermediate_size",), tied=tied)
    kv_heads = c.integer("num_key_value_heads", default=s.heads)
    return evolve(s, gated_mlp=True, kv_heads=kv_heads, head_dim=c.integer("head_dim", default=head_dim or s.head_dim))


def other_dimensions(
    c: Config, intermediate: Sequence[str], *, tied: bool = True, times: int | None = None, context: int | None = None
) -> Shape:
    """The dimensions of families older than Llama. Their MLP has no gate, each head has its own keys and values, and
    config.json has other names.

    `intermediate` lists the possible keys for the width of the MLP; the value of the first existing key is used.
    Without such a key, the width is `times` x hidden size. `context` is the default length of the context.
    """
    hidden = c.integer("hidden_size", "n_embd")
    heads = c.integer("num_attention_heads", "n_head")
    return Shape(
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


def _attention(s: Shape, qkv_bias: bool = False, out_bias: bool = False) -> int:
    weights = 2 * s.hidden * s.q + 2 * s.hidden * s.kv
    return weights + (s.q + 2 * s.kv) * qkv_bias + s.hidden * out_bias


def mlp(s: Shape, bias: bool = False) -> int:
    """The number of parameters of a layer's MLP."""
    matrices = 3 if s.gated_mlp else 2
    return matrices * s.hidden * s.intermediate + (s.intermediate * (matrices - 1) + s.hidden) * bias


def embeddings(s: Shape) -> int:
    """The number of parameters of the embeddings and of the head, which are one matrix if they are tied."""
    return s.vocab * s.hidden * (1 if s.tied else 2)


def llama(
    c: Config, *, tied: bool = False, norms: int = 2, mlp_bias: bool = True, head_dim: int | None = None
) -> Shape:
    """The shape of Llama: RMSNorm, a gated MLP, and one key of config.json (`attention_bias`) for all four attention
    biases.
    """
    s = _dimensions(c, tied, head_dim)
    bias = c.flag("attention_bias", False)
    layer = _attention(s, bias, bias) + mlp(s, mlp_bias and c.flag("mlp_bias", False)) + norms * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _plain(c: Config, head_dim: int | None = None) -> Shape:
    """The shape of Mistral and Phi-3: Llama's shape without biases. Phi-3 joins several matrices into one, which does
    not change the number of parameters.
    """
    s = _dimensions(c, head_dim=head_dim)
    return evolve(s, layer_params=_attention(s) + mlp(s) + 2 * s.hidden, outside=embeddings(s) + s.hidden)


def _qwen2(c: Config) -> Shape:
    """The shape of Qwen2: Llama's shape with biases on q, k and v, and without a bias on the output projection."""
    s = _dimensions(c)
    return evolve(
        s, layer_params=_attention(s, qkv_bias=True) + mlp(s) + 2 * s.hidden, outside=embeddings(s) + s.hidden
    )


def _qwen3(c: Config, head_dim: int | None = 128) -> Shape:
    """The shape of Qwen3: norms on q and k that are as wide as one head."""
    s = llama(c, mlp_bias=False, head_dim=head_dim)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _gemma(c: Config) -> Shape:
    return llama(c, tied=True, mlp_bias=False, head_dim=256)


def _gemma2(c: Config) -> Shape:
    """The shape of Gemma 2: norms before and after attention and MLP."""
    return llama(c, tied=True, norms=4, mlp_bias=False, head_dim=256)


def _gemma3(c: Config) -> Shape:
    s = _gemma2(c)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _olmo2(c: Config) -> Shape:
    """The shape of OLMo 2: norms over the full width of q and of k."""
    s = llama(c, mlp_bias=False)
    return evolve(s, layer_params=s.layer_params + s.q + s.kv)


def _glm(c: Config, norms: int = 2) -> Shape:
    s = _dimensions(c, head_dim=128)
    layer = _attention(s, qkv_bias=c.flag("attention_bias", True)) + mlp(s) + norms * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _experts(
    s: Shape, layer_without_mlp: int, per_token: int, experts: int, dense_layers: int = 0, dense: int = 0
) -> Shape:
    """The shape with `experts` MLPs and a router without bias in place of each MLP. The MLPs of the first
    `dense_layers` layers, with `dense` parameters each, are not replaced.
    """
    expert = mlp(s)
    return evolve(
        s,
        layer_params=layer_without_mlp + experts * expert + experts * s.hidden,
        experts=experts,
        experts_per_token=min(per_token, experts),
        expert=expert,
        dense_layers=dense_layers,
        dense_layer=layer_without_mlp + dense,
    )


def _mixtral(c: Config) -> Shape:
    s = _plain(c)
    per_token = c.integer("num_experts_per_tok", default=2)
    return _experts(s, s.layer_params - mlp(s), per_token, c.integer("num_local_experts", "num_experts"))


def _qwen3_moe(c: Config) -> Shape:
    s = _qwen3(c, head_dim=None)
    without = s.layer_params - mlp(s)
    dense = mlp(s)
    s = evolve(s, intermediate=c.integer("moe_intermediate_size"))
    experts = c.integer("num_experts", "num_local_experts")
    step = c.integer("decoder_sparse_step", default=1)
    listed = c.values.get("mlp_only_layers")
    only = {n for n in listed if isinstance(n, int) and 0 <= n < s.layers} if isinstance(listed, list) else set()
    # every `step`-th layer has experts, except the layers that config.json lists as layers without experts
    sparse = s.layers // step - sum(1 for n in only if (n + 1) % step == 0)
    plain = s.layers - (sparse if experts else 0)
    return _experts(s, without, c.integer("num_experts_per_tok", default=8), experts, plain, dense)


def _apertus(c: Config) -> Shape:
    """The shape of Apertus: norms of q and k as wide as one head, and an MLP without a gate. The activation function
    xIELU has two trained numbers. The key `attention_bias` decides whether all four attention projections have biases.
    """
    s = evolve(_dimensions(c), gated_mlp=False)
    bias = c.flag("attention_bias", False)
    numbers = 2 if c.text("hidden_act") in (None, "xielu") else 0
    layer = _attention(s, bias, bias) + mlp(s) + 2 * s.hidden + 2 * s.head_dim + numbers
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _arcee(c: Config) -> Shape:
    """The shape of Arcee: Llama with an MLP that has no gate."""
    s = evolve(_dimensions(c), gated_mlp=False)
    bias = c.flag("attention_bias", False)
    layer = _attention(s, bias, bias) + mlp(s, c.flag("mlp_bias", False)) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _ernie(c: Config) -> Shape:
    """The shape of ERNIE 4.5: Llama with one key (`use_bias`) for all biases."""
    s = _dimensions(c, tied=True, head_dim=128)
    bias = c.flag("use_bias", False)
    layer = _attention(s, bias, bias) + mlp(s, bias) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _exaone4(c: Config) -> Shape:
    """The shape of EXAONE 4: norms after attention and MLP, and norms of q and k that are as wide as one head."""
    s = _plain(c)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _hunyuan(c: Config) -> Shape:
    """The shape of Hunyuan: Llama with norms of q and k that are as wide as one head."""
    s = llama(c, mlp_bias=False)
    return evolve(s, layer_params=s.layer_params + 2 * s.head_dim)


def _seed_oss(c: Config) -> Shape:
    """The shape of Seed-OSS: Llama's shape with two keys for biases: `attention_bias` for q, k and v, and
    `attention_out_bias` for the output projection.
    """
    s = _dimensions(c, head_dim=128)
    attention = _attention(s, c.flag("attention_bias", True), c.flag("attention_out_bias", False))
    layer = attention + mlp(s, c.flag("mlp_bias", False)) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _starcoder2(c: Config) -> Shape:
    """The shape of Starcoder2: LayerNorms with bias, an MLP of two matrices, and one key (`use_bias`) for all
    biases.
    """
    s = evolve(_dimensions(c, tied=True), gated_mlp=False)
    bias = c.flag("use_bias", True)
    return evolve(
        s, layer_params=_attention(s, bias, bias) + mlp(s, bias) + 4 * s.hidden, outside=embeddings(s) + 2 * s.hidden
    )


def _gpt2(c: Config) -> Shape:
    s = other_dimensions(c, ("n_inner",), times=4)
    layer = _attention(s, True, True) + mlp(s, True) + 4 * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.context * s.hidden + 2 * s.hidden)


def _gpt_bigcode(c: Config) -> Shape:
    """The shape of GPT-BigCode: GPT-2's shape with a single head for keys and values. Without `multi_query`, each query
    head has its own keys and values, as in GPT-2.
    """
    s = _gpt2(c)
    s = evolve(s, kv_heads=1 if c.flag("multi_query", True) else s.heads)
    return evolve(s, layer_params=_attention(s, True, True) + mlp(s, True) + 4 * s.hidden)


def _cohere(c: Config) -> Shape:
    """The shape of Cohere: attention and MLP run in parallel after a single norm. The key `use_qk_norm` adds norms of q
    and k.
    """
    s = llama(c, tied=True, norms=1, mlp_bias=False)
    return evolve(s, layer_params=s.layer_params + (s.q + s.kv) * c.flag("use_qk_norm", False))


def _gpt_oss(c: Config) -> Shape:
    """The shape of gpt-oss: each head has a sink, and the projections, the router and the experts have biases."""
    s = _dimensions(c, head_dim=64)
    bias = c.flag("attention_bias", True)
    without = _attention(s, bias, bias) + s.heads + 2 * s.hidden
    experts = c.integer("num_local_experts", default=128)
    s = evolve(s, outside=embeddings(s) + s.hidden)
    s = _experts(s, without, c.integer("num_experts_per_tok", default=4), experts)
    biases = 2 * s.intermediate + s.hidden
    return evolve(s, layer_params=s.layer_params + experts * (biases + 1), expert=s.expert + biases)


def _gpt_neox(c: Config) -> Shape:
    """The shape of GPT-NeoX: each head has its own keys and values, and `num_key_value_heads` is ignored."""
    s = _dimensions(c)
    s = evolve(s, gated_mlp=False, kv_heads=s.heads, head_dim=s.hidden // s.heads)
    bias = c.flag("attention_bias", True)
    return evolve(
        s, layer_params=_attention(s, bias, bias) + mlp(s, True) + 4 * s.hidden, outside=embeddings(s) + 2 * s.hidden
    )


def _opt(c: Config) -> Shape:
    """The shape of OPT. It has learned positions: two more than the context is long. If the embedding is narrower than
    the layers, there is one projection before the layers and one after them.
    """
    s = other_dimensions(c, ("ffn_dim",))
    hidden = s.hidden
    bias, norm = c.flag("enable_bias", True), 2 * hidden * c.flag("layer_norm_elementwise_affine", True)
    width = c.integer("word_embed_proj_dim", default=hidden)
    outside = s.vocab * width * (1 if s.tied else 2) + (s.context + 2) * hidden + 2 * width * hidden * (width != hidden)
    final = c.flag("do_layer_norm_before", True) and not c.flag("_remove_final_layer_norm", False)
    return evolve(s, layer_params=_attention(s, bias, bias) + mlp(s, bias) + 2 * norm, outside=outside + norm * final)


def _falcon(c: Config) -> Shape:
    """The shape of Falcon. For keys and values, the 7B model has one head, the 40B model one head per group of query
    heads, and the RW models one head per query head. The 40B model also has two norms per layer.
    """
    s = other_dimensions(c, ("ffn_hidden_size",), times=4, context=2048)
    new = c.flag("new_decoder_architecture", False)
    one = 1 if c.flag("multi_query", True) else s.heads
    s = evolve(s, kv_heads=c.integer("num_kv_heads", default=s.heads) if new else one)
    bias = c.flag("bias", False)
    two = c.integer("num_ln_in_parallel_attn", default=2) == 2 if new else not c.flag("parallel_attn", True)
    layer = _attention(s, bias, bias) + mlp(s, bias) + 2 * s.hidden * (2 if two else 1)
    return evolve(s, layer_params=layer, outside=embeddings(s) + 2 * s.hidden)


def _qwen2_5_vl(c: Config) -> Shape:
    """The shape of Qwen2.5-VL: Qwen2 with a vision tower. The tower has an embedding of image patches without a bias,
    blocks with a gated MLP and with biases everywhere, and a projection of merged patches to the width of the language
    model.
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


FAMILIES: dict[str, Callable[[Config], Shape]] = {
    "apertus": _apertus,
    "arcee": _arcee,
    "cohere": _cohere,
    "cohere2": lambda c: llama(c, tied=True, norms=1, mlp_bias=False),
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
    "granite": llama,
    "hunyuan_v1_dense": _hunyuan,
    "hyperclovax": lambda c: llama(c, norms=4 if c.flag("use_post_norm", True) else 2),
    "iquestcoder": lambda c: llama(c, head_dim=128),
    "llama": llama,
    "ministral3": lambda c: _plain(c, head_dim=128),
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
    "smollm3": lambda c: llama(c, tied=True),
    "starcoder2": _starcoder2,
}
