"""The names of modules, for each family whose layers are all alike. The settings of adapters and of `freeze` may name
these modules.

The names are those of linear layers and embeddings in transformers 5.23 and 4.52. (GPT-2's linear layers have
transposed weights.) A test builds a model of every family and compares the names. Mixtures of experts and hybrids are
excluded, because their modules depend on the version of transformers and on the configuration.
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
"""Maps families to the names of their embeddings. For a family that is not listed, the name is `embed_tokens`."""
MODULES: dict[str, tuple[str, ...]] = {
    family: (
        *dict.fromkeys(name.rpartition(".")[2] for name in names.values()),
        *FAMILY_EMBEDDINGS.get(family, ("embed_tokens",)),
    )
    for family, names in NAMES.items()
}
EMBEDDINGS = frozenset((*TOKEN_EMBEDDINGS, "wpe", "embed_positions"))
"""The names of embeddings in all families. Embeddings are outside of the layers."""
BLOCKS = {
    **dict.fromkeys(MODULES, ("self_attn", "mlp")),
    **dict.fromkeys(("bloom", "falcon"), ("self_attention", "mlp")),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gptj"), ("attn", "mlp")),
    "gpt_neox": ("attention", "mlp"),
    "opt": ("self_attn",),
}
"""Maps each family to the blocks of its decoder layers, such as `self_attn` and `mlp`."""
CONTAINERS = {
    **dict.fromkeys(MODULES, ("model", "layers")),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_bigcode", "gptj"), ("transformer", "h")),
    "gpt_neox": ("gpt_neox", "layers"),
    "opt": ("model", "decoder", "layers"),
}
"""Maps each family to the modules that contain its list of layers, outermost first: `model`, `layers`."""

NORMS = {
    **dict.fromkeys(MODULES, ("norm",)),
    **dict.fromkeys(("falcon", "gpt2", "gpt_bigcode", "gptj"), ("ln_f",)),
    **dict.fromkeys(("gpt_neox", "opt"), ("final_layer_norm",)),
    "bloom": ("ln_f", "word_embeddings_layernorm"),
    "olmo": (),
    "phi": ("final_layernorm",),
}
"""Maps each family to its norms outside of the layers. OLMo is not listed, because its final norm has no weights."""
PROJECTIONS = {"opt": ("project_in", "project_out")}
"""Maps families to the projections between embeddings and layers. They exist if embeddings and layers differ in size.
"""


def heads(spec: Spec, family: str) -> tuple[str, ...]:
    """The names of a family's output head in the stack's transformers. Empty for a reward model, which has no output
    head.
    """
    return () if spec.method.scores else (spec.stack.facts.output_heads.get(family, "lm_head"),)


def outer_modules(family: str) -> tuple[str, ...]:
    """The names of two kinds of modules of a family: modules outside its layers, such as the embeddings and the last
    norm, and modules that contain other modules, such as `model`. The output head is not included.
    """
    own = [one for one in MODULES[family] if one in EMBEDDINGS]
    return (*own, *NORMS[family], *PROJECTIONS.get(family, ()), *CONTAINERS[family][:-1])


def outer_modules_and_head(spec: Spec, family: str) -> tuple[str, ...]:
    """The names of the modules outside of a model's layers, including the output head."""
    return (*outer_modules(family), *heads(spec, family))


def layer_modules(family: str) -> frozenset[str]:
    """The names of the linear modules, such as `q_proj`, and of the blocks, such as `self_attn`, in a family's
    layers.
    """
    return frozenset((*MODULES[family], *BLOCKS[family])) - EMBEDDINGS


def container_names() -> frozenset[str]:
    """The names of modules that contain other modules, such as `self_attn`, in any family. Also `score`, the head of a
    reward model.
    """
    return frozenset(one for parts in (*BLOCKS.values(), *CONTAINERS.values()) for one in (*parts, "score"))


def all_layer_modules() -> frozenset[str]:
    """The names of all modules that occur in a layer of any family."""
    return frozenset().union(*map(layer_modules, MODULES))
