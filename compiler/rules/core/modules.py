"""The modules that the settings of adapters and of `freeze` may name, for each family whose layers are all alike.

A test builds a model of every family and compares the names.
"""

from __future__ import annotations

from xpc.compiler.registry.family_modules import family_modules
from xpc.compiler.registry.linear_layers import TOKEN_EMBEDDINGS
from xpc.compiler.spec import Spec

EMBEDDINGS = frozenset((*TOKEN_EMBEDDINGS, "wpe", "embed_positions"))
"""The names of embeddings in all families. Embeddings are outside of the layers."""


def heads(spec: Spec, family: str) -> tuple[str, ...]:
    """The names of a family's output head in the stack's transformers. Empty for a reward model, which has no output
    head.
    """
    return () if spec.method.scores else (spec.stack.facts.output_heads.get(family, "lm_head"),)


def outer_modules(family: str) -> tuple[str, ...]:
    """The names of two kinds of modules of a family: modules outside its layers, such as the embeddings and the last
    norm, and modules that contain other modules, such as `model`. The output head is not included.
    """
    of = family_modules()[family]
    return (*of.embeddings, *of.norms, *of.projections, *of.containers[:-1])


def outer_modules_and_head(spec: Spec, family: str) -> tuple[str, ...]:
    """The names of the modules outside of a model's layers, including the output head."""
    return (*outer_modules(family), *heads(spec, family))


def layer_modules(family: str) -> frozenset[str]:
    """The names of the linear modules, such as `q_proj`, and of the blocks, such as `self_attn`, in a family's
    layers.
    """
    of = family_modules()[family]
    return frozenset((*of.names, *of.blocks)) - EMBEDDINGS


def container_names() -> frozenset[str]:
    """The names of modules that contain other modules, such as `self_attn`, in any family. `score`, the head of a
    reward model, is one of them.
    """
    return frozenset(one for of in family_modules().values() for one in (*of.blocks, *of.containers, "score"))


def all_layer_modules() -> frozenset[str]:
    """The names of all modules that occur in a layer of any family."""
    return frozenset().union(*map(layer_modules, family_modules()))
