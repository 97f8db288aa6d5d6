"""The number of parameters of models with multi-head latent attention (MLA), such as DeepSeek's.

MLA projects the queries to `q_lora_rank` numbers, and the keys and values to `kv_lora_rank` numbers. The results are
then expanded for each head. A part of each head (`qk_rope_head_dim`) has positions; in the keys, all heads share this
part. The families differ in their defaults, and in whether layers have experts.
"""

from collections.abc import Callable

from xpc.compiler.registry.config_json import Config
from xpc.compiler.registry.parameter_counts import Shape, embeddings, mlp, other_dimensions
from xpc.grammar.record import evolve


def _attention(s: Shape, bias: bool) -> int:
    """The number of parameters of one layer's attention, including the norms after its two down-projections (of the
    queries, and of the keys and values).
    """
    expanded = s.heads * (s.head_dim - s.rotated + s.value_dim)
    keys = s.hidden * (s.latent + s.rotated) + s.latent + s.latent * expanded
    biases = (s.query_rank + s.latent + s.rotated + s.hidden) * bias
    queries = (s.hidden + s.q) * s.query_rank + s.query_rank if s.query_rank else s.hidden * s.q
    return queries + keys + s.values * s.hidden + biases


def _mlp_bias(c: Config) -> bool:
    """Whether the MLPs have biases. Only deepseek_v2 and minicpm3 read the key `mlp_bias`."""
    return c.model_type in ("deepseek_v2", "minicpm3") and c.flag("mlp_bias", False)


def _decoder(
    c: Config, nope: int, rope: int, value: int | None, latent: int, rank: int, *, tied: bool = False
) -> Shape:
    """The shape of a decoder with latent attention and a plain MLP. The arguments are the defaults of transformers'
    configuration class. `rank` is the default of `q_lora_rank`; if config.json has null for it, the queries have a
    single projection.
    """
    s = evolve(other_dimensions(c, ("intermediate_size",), tied=tied), gated_mlp=True)
    rotated = c.integer("qk_rope_head_dim", default=rope)
    s = evolve(
        s,
        head_dim=c.integer("qk_nope_head_dim", default=nope) + rotated,
        rotated=rotated,
        value_dim=c.integer("v_head_dim", default=value or s.head_dim),
        latent=c.integer("kv_lora_rank", default=latent),
        query_rank=0 if c.values.get("q_lora_rank", rank) is None else c.integer("q_lora_rank", default=rank),
    )
    layer = _attention(s, c.flag("attention_bias", False)) + mlp(s, _mlp_bias(c)) + 2 * s.hidden
    return evolve(s, layer_params=layer, outside=embeddings(s) + s.hidden)


def _mixture(c: Config, s: Shape, dense: int, experts: int, shared: int, per_token: int, inner: int) -> Shape:
    """The shape with experts after the first `dense` layers. Each layer with experts also has a shared expert, which is
    an MLP as wide as `shared` experts, and a router without a bias.
    """
    bias = _mlp_bias(c)
    without, dense_layer, wide = s.layer_params - mlp(s, bias), s.layer_params, s.intermediate
    s = evolve(s, intermediate=c.integer("moe_intermediate_size", default=inner))
    experts = c.integer("n_routed_experts", default=experts)
    together = evolve(s, intermediate=s.intermediate * c.integer("n_shared_experts", default=shared))
    expert = mlp(s)
    return evolve(
        s,
        layer_params=without + experts * (expert + s.hidden) + mlp(together, bias),
        experts=experts,
        experts_per_token=min(experts, c.integer("num_experts_per_tok", default=per_token)),
        expert=expert,
        dense_layers=min(dense, s.layers),
        dense_layer=dense_layer,
        dense_width=wide,
        shared_width=together.intermediate,
    )


def _first(c: Config, default: int) -> int:
    """The number of layers without experts at the start of the model."""
    first = c.values.get("first_k_dense_replace", default)
    return first if isinstance(first, int) else default


def _deepseek_v2(c: Config) -> Shape:
    s = _decoder(c, 128, 64, 128, 512, 1536)
    return _mixture(c, s, _first(c, 0), 64, 2, 6, 1407)


def _deepseek_v3(c: Config) -> Shape:
    s = _decoder(c, 128, 64, 128, 512, 1536)
    return _mixture(c, s, _first(c, 3), 256, 1, 8, 2048)


def _glm4_moe_lite(c: Config) -> Shape:
    """The shape of GLM-4.7-Flash. `mlp_layer_types` lists which layers have experts; by default, all but the first."""
    s = _decoder(c, 192, 64, 256, 512, 768)
    kinds = c.values.get("mlp_layer_types")
    dense = sum(1 for kind in kinds if kind != "sparse") if isinstance(kinds, list) else 1
    return _mixture(c, s, dense, 64, 1, 4, 1536)


LATENT: dict[str, Callable[[Config], Shape]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "glm4_moe_lite": _glm4_moe_lite,
    "minicpm3": lambda c: _decoder(c, 64, 32, None, 256, 768, tied=True),
    "youtu": lambda c: _decoder(c, 128, 64, 128, 512, 1536, tied=True),
}
