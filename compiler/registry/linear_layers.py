"""The linear layers of one decoder layer, by family: which of them get adapters, and how many parameters the adapters
have.

A fused projection gets a single adapter: in Phi-3, `qkv_proj` gets one adapter; in other families, `q_proj`, `k_proj`
and `v_proj` get three. The names of layers are those of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.registry.family_modules import family_modules
from xpc.compiler.registry.types import ModelFacts
from xpc.grammar.record import evolve, record

TOKEN_EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in")
"""The names of embeddings that have a row for each token."""
HEADS = ("lm_head", "embed_out")
"""Names of the output head; `embed_out` is its name in gpt_neox of transformers 4.52."""
TABLES = (*TOKEN_EMBEDDINGS, *HEADS)
"""Modules whose weight is a matrix of vocabulary size x hidden size: embeddings and output heads."""
ATTENTION = ("q", "k", "v", "qkv", "kv", "o")
"""The sites in attention. A site is the role of a linear layer, such as `q`; the sites in the MLP are gate, up, gate_up
and down. In latent attention (MLA), keys and values share their layers (`kv`), and two layers can have one site.
"""


@record
class Linear:
    """A linear layer: the name of its module, its site (such as `q` or `up`), its widths, and the number of such layers
    in a decoder layer: 1, or the number of experts. If the decoder layers differ, this number is an average over them.
    """

    name: str
    site: str
    inputs: int
    outputs: int
    count: float


def linear_layers(facts: ModelFacts) -> tuple[Linear, ...]:
    """All linear layers of one decoder layer, except the router of a mixture of experts."""
    hidden, inner = facts.hidden, facts.intermediate
    wide, narrow = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    widths = {
        "q": (hidden, wide), "k": (hidden, narrow), "v": (hidden, narrow), "qkv": (hidden, wide + 2 * narrow),
        "o": (wide, hidden), "gate": (hidden, inner), "up": (hidden, inner), "gate_up": (hidden, 2 * inner),
        "down": (inner, hidden),
    }  # fmt: skip
    # families that are not listed, including mixtures of experts, have Llama's names
    names = family_modules().get(facts.model_type, family_modules()["llama"]).linear
    first = _latent_attention(facts) if facts.latent else ()
    sparse = 1 - facts.dense_layers / facts.layers if facts.uneven else 1
    return (
        first
        + plain_mlps(facts)
        + tuple(
            Linear(name, site, *widths[site], 1 if site in ATTENTION else max(1, facts.experts) * sparse)
            for site, name in names.items()
            if (site != "gate" or facts.gated_mlp) and not (first and site in ATTENTION)
        )
    )


def plain_mlps(facts: ModelFacts) -> tuple[Linear, ...]:
    """The linear layers of a mixture that are in no expert: those of the MLP next to the experts, and those of the
    layers without experts.
    """
    if not facts.uneven:
        return ()
    dense, hidden = facts.dense_layers / facts.layers, facts.hidden
    return tuple(
        Linear(f"{place}.{site}_proj", site, *((wide, hidden) if site == "down" else (hidden, wide)), count)
        for place, wide, count in (("shared_experts", facts.shared_width, 1 - dense), ("mlp", facts.dense_width, dense))
        for site in ("gate", "up", "down")
        if count
    )


def _latent_attention(facts: ModelFacts) -> tuple[Linear, ...]:
    """The linear layers of latent attention: down-projections (`q_a_proj`), up-projections to all heads (`q_b_proj`),
    and the output projection.
    """
    hidden, rank, wide = facts.hidden, facts.query_rank, facts.heads * facts.head_dim
    ranked = (Linear("q_a_proj", "q", hidden, rank, 1), Linear("q_b_proj", "q", rank, wide, 1))
    expanded = wide - facts.heads * facts.rotated + facts.values
    return (
        *(ranked if rank else (Linear("q_proj", "q", hidden, wide, 1),)),
        Linear("kv_a_proj_with_mqa", "kv", hidden, facts.latent + facts.rotated, 1),
        Linear("kv_b_proj", "kv", facts.latent, expanded, 1),
        Linear("o_proj", "o", facts.values, hidden, 1),
    )


def targeted(facts: ModelFacts, targets: object, within: str = "") -> tuple[Linear, ...]:
    """The linear layers of a decoder layer that `targets` selects. As in PEFT, a target may be only the end of a
    layer's name. If `targets` is not a list, all linear layers are returned.
    """
    if not isinstance(targets, Sequence) or isinstance(targets, str):
        return linear_layers(facts)
    found = (selected(facts, one, tuple(map(str, targets)), within) for one in linear_layers(facts))
    return tuple(one for one in found if one.count)


def selected(facts: ModelFacts, one: Linear, targets: Sequence[str], within: str = "") -> Linear:
    """A linear layer with the number of its copies that `targets` selects, as an average over the decoder layers. A
    target, or `within`, may have the number of a decoder layer (`layers.20`) and of an expert (`experts.3`).
    """
    having = facts.layers  # the number of decoder layers that have this linear layer
    if facts.uneven and one.site not in ATTENTION:
        having = facts.dense_layers if one.name.startswith("mlp.") else facts.layers - facts.dense_layers
    count = 0.0
    for layer, expert in {numbers(f"{within}.{target}") for target in targets if _means(target, one.name)}:
        count += one.count / (having if layer else 1) / (facts.experts if expert else 1)
    return evolve(one, count=min(one.count, count))


def numbers(path: str) -> tuple[str, str]:
    """The numbers of the decoder layer and of the expert in a path, each "" if the path has no such number."""
    words = path.split(".")
    pairs = [(before, word) for before, word in zip(["", *words], words, strict=False) if word.isdecimal()]
    first, second = ([word for before, word in pairs if (before == "experts") is of] for of in (False, True))
    return ".".join(first), ".".join(second)


def _means(target: str, name: str) -> bool:
    """Whether one of two dotted names ends with the other, as `self_attn.q_proj` ends with `q_proj`."""
    return f".{name}".endswith(f".{target}") or f".{target}".endswith(f".{name}")


def tables(names: Sequence[str]) -> int:
    """How many of the modules in `names` are embeddings or output heads."""
    return sum(name.rpartition(".")[2] in TABLES for name in names)


def lora_parameters(facts: ModelFacts, rank: int, layers: Sequence[Linear], dora: bool = False) -> int:
    """The number of LoRA parameters for these linear layers, in all decoder layers together. DoRA adds one parameter, a
    magnitude, for each output.
    """
    each = sum((rank * (one.inputs + one.outputs) + dora * one.outputs) * one.count for one in layers)
    return round(facts.layers * each)


def layer_parameters(kind: str, rank: int, layers: Sequence[Linear]) -> float:
    """The number of trained parameters of VeRA, LoHa or MiSS for these linear layers, in one decoder layer on average.

    For each linear layer, VeRA trains two vectors (one with `rank` elements, one with an element for each output), LoHa
    two pairs of matrices, and MiSS one matrix of rank x outputs. Source: peft 0.21 and 0.17
    `tuners/{vera,loha,miss}/layer.py`.
    """
    if kind == "vera":
        return sum((rank + one.outputs) * one.count for one in layers)
    if kind == "loha":
        return sum(2 * rank * (one.inputs + one.outputs) * one.count for one in layers)
    return sum(rank * one.outputs * one.count for one in layers)


def shared_parameters(rank: int, layers: Sequence[Linear]) -> int:
    """The number of parameters in the two random matrices of VeRA. All layers share these frozen matrices, which are as
    wide as the widest adapted layer.
    """
    return rank * (max((one.inputs for one in layers), default=0) + max((one.outputs for one in layers), default=0))
