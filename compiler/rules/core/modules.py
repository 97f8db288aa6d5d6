"""Names of modules by family, for families whose layers are all alike. Adapters and `freeze` may name these modules.

The names are those of linear layers (GPT-2's are transposed) and embeddings in transformers 5.23 and 4.52; a test
builds every family and compares. Mixtures of experts and hybrids are excluded: their modules depend on version and
configuration.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import NAMES, TOKEN_EMBEDDINGS
from xpc.compiler.spec import Spec

FAMILY_EMBEDDINGS = {
    **dict.fromkeys(("bloom", "falcon"), ("word_embeddings",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("wte", "wpe")),
    "gpt_neox": ("embed_in",),
    "gptj": ("wte",),
    "opt": ("embed_tokens", "embed_positions"),
}
"""The embeddings of families that have other embeddings than `embed_tokens`."""
MODULES: dict[str, tuple[str, ...]] = {
    family: (
        *dict.fromkeys(name.rpartition(".")[2] for name in names.values()),
        *FAMILY_EMBEDDINGS.get(family, ("embed_tokens",)),
    )
    for family, names in NAMES.items()
}
EMBEDDINGS = frozenset((*TOKEN_EMBEDDINGS, "wpe", "embed_positions"))
"""Embeddings of all families; they are outside of the layers."""
BLOCKS = {
    **dict.fromkeys(MODULES, ("self_attn", "mlp")),
    **dict.fromkeys(("bloom", "falcon"), ("self_attention", "mlp")),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gptj"), ("attn", "mlp")),
    "gpt_neox": ("attention", "mlp"),
    "opt": ("self_attn",),
}
"""The blocks that a layer consists of, by family."""
CONTAINERS = {
    **dict.fromkeys(MODULES, ("model", "layers")),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_bigcode", "gptj"), ("transformer", "h")),
    "gpt_neox": ("gpt_neox", "layers"),
    "opt": ("model", "decoder", "layers"),
}
"""The modules that contain the layers, by family, outermost first."""

NORMS = {
    **dict.fromkeys(MODULES, ("norm",)),
    **dict.fromkeys(("falcon", "gpt2", "gpt_bigcode", "gptj"), ("ln_f",)),
    **dict.fromkeys(("gpt_neox", "opt"), ("final_layer_norm",)),
    "bloom": ("ln_f", "word_embeddings_layernorm"),
    "olmo": (),
    "phi": ("final_layernorm",),
}
"""The norms outside of the layers, by family. OLMo's has no weights."""
PROJECTIONS = {"opt": ("project_in", "project_out")}
"""Projections between embeddings and layers, in families where their sizes differ."""


def heads(spec: Spec, family: str) -> tuple[str, ...]:
    """The names of a family's output head in the stack's transformers; empty for a reward model, which has none."""
    return () if spec.method.scores else (spec.stack.facts.output_heads.get(family, "lm_head"),)


def outer_modules(family: str) -> tuple[str, ...]:
    """The names of a family's modules outside of its layers, with the modules that contain them, without the head."""
    own = [one for one in MODULES[family] if one in EMBEDDINGS]
    return (*own, *NORMS[family], *PROJECTIONS.get(family, ()), *CONTAINERS[family][:-1])


def outer_modules_and_head(spec: Spec, family: str) -> tuple[str, ...]:
    """The modules outside of a model's layers, with the head."""
    return (*outer_modules(family), *heads(spec, family))


def layer_modules(family: str) -> frozenset[str]:
    """The linear modules and the blocks of a family's layers."""
    return frozenset((*MODULES[family], *BLOCKS[family])) - EMBEDDINGS


def container_names() -> frozenset[str]:
    """All modules with submodules, of any family, and the score of a reward model."""
    return frozenset(one for parts in (*BLOCKS.values(), *CONTAINERS.values()) for one in (*parts, "score"))


def all_layer_modules() -> frozenset[str]:
    """The modules in the layers of any family."""
    return frozenset().union(*map(layer_modules, MODULES))
