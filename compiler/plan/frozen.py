"""Effects of `freeze` (training only some weights): the number of trained parameters, and the layers that a gradient
passes through.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import HEADS, TOKEN_EMBEDDINGS
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.spec import Spec
from xpc.grammar.record import record


@record
class Part:
    """What `freeze` leaves trainable: the number of `trained` parameters, and how many of the last `layers` save
    tensors.

    `exact` is false if a count is an upper bound: a pattern of names counts as every parameter, `layer_modules` as the
    complete layer, and a frozen layer that a gradient passes through as a trained one. Norms and biases count as 0.
    """

    trained: float
    layers: int
    exact: bool


def trained_part(spec: Spec, facts: ModelFacts) -> Part:
    """Count the parameters and layers of a model that `freeze` leaves trainable.

    Layers below the first trained weight save nothing, because their input needs no gradient (torch autograd). The
    exception is reentrant recomputation, for which the output of the embeddings has a gradient.
    """
    first, last = (spec.get("freeze.except_first") or 0), (spec.get("freeze.except_last") or 0)
    modules = {name.rpartition(".")[2] for name in spec.names("freeze.except_modules")}
    if spec.names("freeze.except_parameters"):
        return Part(float(facts.params), facts.layers, False)
    embedded, headed = bool(modules & {*TOKEN_EMBEDDINGS}), bool(modules & {*HEADS})
    tables = max(embedded, headed) if facts.tied else embedded + headed
    layers = min(facts.layers, first + last)
    whole = first or embedded or (headed and facts.tied) or spec.get("memory.checkpointing.reentrant")
    trained = layers * facts.layer_params + tables * facts.vocab * facts.hidden
    exact = not whole and not spec.names("freeze.layer_modules")
    return Part(float(min(trained, facts.params)), facts.layers if whole else last, exact)
