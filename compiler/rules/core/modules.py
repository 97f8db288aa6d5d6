"""The modules that an adapter may stand on, by family: those whose layers are all alike in both targets.

Linear layers, their transposed kin of GPT-2, and embeddings; of transformers 5.23 and 4.52. A test builds every family
and compares. Mixtures of experts and hybrids are left out: their modules differ by version and by configuration.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import NAMES, TOKEN_EMBEDDINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.spec import Spec

EMBEDDED = {
    **dict.fromkeys(("bloom", "falcon"), ("word_embeddings",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("wte", "wpe")),
    "gpt_neox": ("embed_in",),
    "gptj": ("wte",),
    "opt": ("embed_tokens", "embed_positions"),
}
"""The embeddings of a family; those of the others are `embed_tokens` alone."""
MODULES: dict[str, tuple[str, ...]] = {
    family: (
        *dict.fromkeys(name.rpartition(".")[2] for name in names.values()),
        *EMBEDDED.get(family, ("embed_tokens",)),
    )
    for family, names in NAMES.items()
}
EMBEDDINGS = frozenset((*TOKEN_EMBEDDINGS, "wpe", "embed_positions"))
"""Modules that stand outside of the layers."""
BLOCKS = {
    **dict.fromkeys(MODULES, ("self_attn", "mlp")),
    **dict.fromkeys(("bloom", "falcon"), ("self_attention", "mlp")),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gptj"), ("attn", "mlp")),
    "gpt_neox": ("attention", "mlp"),
    "opt": ("self_attn",),
}
"""The blocks that a layer consists of, by family."""
HOLDERS = {
    **dict.fromkeys(MODULES, ("model", "layers")),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_bigcode", "gptj"), ("transformer", "h")),
    "gpt_neox": ("gpt_neox", "layers"),
    "opt": ("model", "decoder", "layers"),
}
"""The modules that hold the layers, by family, from the outside."""

NORMS = {
    **dict.fromkeys(MODULES, ("norm",)),
    **dict.fromkeys(("falcon", "gpt2", "gpt_bigcode", "gptj"), ("ln_f",)),
    **dict.fromkeys(("gpt_neox", "opt"), ("final_layer_norm",)),
    "bloom": ("ln_f", "word_embeddings_layernorm"),
    "olmo": (),
    "phi": ("final_layernorm",),
}
"""The norms behind the layers and before them; OLMo's has no weights."""
PROJECTIONS = {"opt": ("project_in", "project_out")}
"""What stands between the embeddings and the layers where their sizes differ."""


def heads(spec: Spec, family: str) -> tuple[str, ...]:
    """The output head of a family, as the stack's transformers calls it; a reward model has none."""
    return () if spec.method.scores else (spec.stack.facts.output_heads.get(family, "lm_head"),)


def around(family: str) -> tuple[str, ...]:
    """The modules outside of a family's layers, without the head, and what holds them and the layers."""
    own = [one for one in MODULES[family] if one in EMBEDDINGS]
    return (*own, *NORMS[family], *PROJECTIONS.get(family, ()), *HOLDERS[family][:-1])


def outside(spec: Spec, family: str) -> tuple[str, ...]:
    """What a model has outside of its layers."""
    return (*around(family), *heads(spec, family))


def inside(family: str) -> frozenset[str]:
    """The linear modules and the blocks of a layer."""
    return frozenset((*MODULES[family], *BLOCKS[family])) - EMBEDDINGS


def holds_layers(family: str, path: str) -> bool:
    """Whether each part of a dotted path is a module that holds others: the decoder, a layer by its number, a block."""
    holders = (*HOLDERS[family], *BLOCKS[family])
    return all(part in holders or part.isdecimal() for part in path.split("."))


def holders() -> frozenset[str]:
    """The modules of some family that hold others, and the score of a reward model."""
    return frozenset(one for parts in (*BLOCKS.values(), *HOLDERS.values()) for one in (*parts, "score"))


def names() -> frozenset[str]:
    """What some family calls a part of its layers."""
    return frozenset().union(*map(inside, MODULES))
