"""What a target supports for a model family. The rules about attention, packing and kernels use these facts."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import Model
from xpc.compiler.stacks import Family

FLASH = ("flash2", "flash3")
OWN_STATE = ("stateful", "kernel")
"""Values of `Family.packing` for model families whose layers pass a state from token to token. An attention mask cannot
reset this state between packed documents.
"""


def family(spec: Spec) -> Family | None:
    """The stack's support for the model's family, such as kinds of attention. None if the family is unknown."""
    return spec.stack.family(spec.model.model_type)


def presumed_type(model: Model) -> str | None:
    """The model's `model_type` if it is known, otherwise the one that the model's name on the hub suggests. None if the
    name suggests none.

    Because of a suggested type, a rule may refuse a setting, but it must not accept one.
    """
    return registry.family_named(model.id) if model.model_type is None and model.id is not None else model.model_type


def presumed_family(spec: Spec, model: Model | None = None) -> Family | None:
    """The stack's support for the `presumed_type` of a model, by default of the trained one. None if it is unknown."""
    return spec.stack.family(presumed_type(model or spec.model))


def presumed_hint(spec: Spec, model: Model | None = None) -> str:
    """The end of a help text. If the family was only guessed from the model's name, it says how the spec can state the
    family. "" if the family is known, and for a teacher, whose family cannot be stated.
    """
    if spec.model.model_type is not None or model not in (None, spec.model):
        return ""
    return '; the family is guessed from the name: if it is wrong, `config = file("config.json")` in `model` states it'


def has_attention(spec: Spec, attn: str) -> bool:
    """Whether the families of the model and its teacher support a kind of attention on this target. An unknown family
    may support every kind.
    """
    known = (presumed_family(spec, model) for model in spec.models)
    return attn == "eager" or all(one is None or attn in one.attention for one in known)


def mask_is_exact(spec: Spec) -> bool:
    """Whether, for this model, the target's attention mask keeps packed documents apart without a flash kernel."""
    known, facts = family(spec), spec.stack.facts
    exact = known is not None and known.packing == "exact" and known.model_type not in facts.mask_mixes
    return facts.isolate_mask and exact


def flash_is_exact(spec: Spec) -> bool:
    """Whether flash attention separates packed documents of this model. For a family outside of the registry, the
    answer is true, unless its layers carry a state from token to token.
    """
    known = presumed_family(spec)
    if known is None:
        return stateful_family(spec) is None
    return not (flash_mixes_documents(spec, known) or known.packing in OWN_STATE)


def stateful_family(spec: Spec) -> str | None:
    """The model's family, if its layers have a recurrent state, as mamba's do; otherwise None. If the family is
    unknown, it is guessed from the hub id.
    """
    if spec.model.model_type is not None or spec.model.id is None:
        return spec.model.model_type if spec.stack.carries(spec.model.model_type) else None
    named = registry.family_named(spec.model.id, spec.stack.carrying)
    return named if spec.stack.carries(named) else None


def flash_mixes_documents(spec: Spec, known: Family) -> bool:
    """Whether flash attention ignores position ids in this family. Packed documents then attend to each other."""
    return known.model_type in spec.stack.facts.flash_mixes


def can_run_flash(spec: Spec) -> bool:
    """Whether the GPU, the dtype and the family support `attn = flash2`."""
    gpu = spec.hardware.gpu
    return (
        gpu is not None
        and gpu.capability >= (8, 0)
        and spec.text("precision") != "fp32"
        and has_attention(spec, "flash2")
    )


def rows_have_bounds(spec: Spec) -> bool:
    """Whether the trainer tells the model where each document in a row ends. True with packing and with `padding_free`;
    false for `wrapped` packing.
    """
    packed = spec.flag("batch.packing") and spec.get("batch.packing.strategy") != "wrapped"
    return packed or (spec.flag("batch.padding_free") and not spec.flag("batch.packing"))
