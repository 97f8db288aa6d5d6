"""For a run with `freeze`, which trains only some weights: count the trained parameters, and the layers through which a
gradient passes.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import HEADS, TOKEN_EMBEDDINGS
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.spec import Spec
from xpc.grammar.record import record


@record
class Part:
    """The part of a model that `freeze` leaves trainable.

    `trained` is the number of trainable parameters. `layers` is the number of layers, counted from the last one, that
    keep activations for the backward pass.

    `exact` is false if a count is an upper bound. There are three such cases. If the spec has patterns of names, all
    parameters count as trained. With `layer_modules`, all parameters of a layer count as trained. A frozen layer counts
    as trained if a gradient passes through it. Norms and biases count as 0.
    """

    trained: float
    layers: int
    exact: bool


def trained_part(spec: Spec, facts: ModelFacts) -> Part:
    """Count the parameters and layers of a model that `freeze` leaves trainable.

    Layers between the embeddings and the first trained weight save no activations, because their input needs no
    gradient. With reentrant recomputation, the output of the embeddings needs a gradient, so all layers save
    activations.
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
