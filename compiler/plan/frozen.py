"""What `freeze` leaves of a model: the parameters that are trained, and the layers that a gradient passes through."""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import HEADS, TOKEN_EMBEDDINGS
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.spec import Spec
from xpc.grammar.record import record


@record
class Part:
    """`trained` parameters, and how many of the last `layers` autograd keeps something of.

    What is not known counts as the most that it can be, and `exact` says that nothing does: a pattern of names as every
    parameter, a module of a name that is not a table's as none of weight (norms, biases), `layer_modules` as the whole
    layer, and a frozen layer that a gradient passes through as a trained one.
    """

    trained: float
    layers: int
    exact: bool


def trained_part(spec: Spec, facts: ModelFacts) -> Part:
    """The part of a model that `freeze` lets be trained.

    Nothing is kept of a layer below the first trained weight, since its input needs no gradient (torch autograd),
    unless recomputation is reentrant: the run then lets the embeddings' output have one.
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
