"""What a target can do with the family of a spec's model: shared by the rules of attention, packing and kernels."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Family

FLASH = ("flash2", "flash3")
OWN_STATE = ("stateful", "kernel")
"""Families with layers that carry a state from token to token, which no attention mask can reset."""


def family(spec: Spec) -> Family | None:
    """What is known of the model's family, or None."""
    return spec.stack.family(spec.model.model_type)


def supposed(spec: Spec) -> Family | None:
    """The family, or the one that the model's name on the hub spells where nothing else is known; None for neither.

    A name is reason enough to refuse what that family cannot do, and never reason to allow anything.
    """
    if spec.model.model_type is not None or spec.model.id is None:
        return family(spec)
    return spec.stack.family(registry.family_named(spec.model.id))


def by_name(spec: Spec) -> str:
    """What a help adds where the family was read off a name: how to say what the model really is."""
    if spec.model.model_type is not None:
        return ""
    return '; `config = file("config.json")` in `model` says otherwise where the name misleads'


def has_attention(spec: Spec, attn: str) -> bool:
    """Whether the model's family has an attention on this target; unknown families may have all of them."""
    known = supposed(spec)
    return known is None or attn == "eager" or attn in known.attention


def mask_is_exact(spec: Spec) -> bool:
    """Whether the target's mask keeps packed documents of this model apart without a flash kernel."""
    known, facts = family(spec), spec.stack.facts
    exact = known is not None and known.packing == "exact" and known.model_type not in facts.mask_mixes
    return facts.isolate_mask and exact


def flash_is_exact(spec: Spec) -> bool:
    """Whether flash attention keeps documents of this model apart; an unknown family does unless its source has a state
    beside the attention."""
    known = supposed(spec)
    if known is None:
        return carrying(spec) is None
    return not (mixes(spec, known) or known.packing in OWN_STATE)


def carrying(spec: Spec) -> str | None:
    """The family beyond the registry whose source in transformers has a state that runs from token to token."""
    if spec.model.model_type is not None or spec.model.id is None:
        return spec.model.model_type if spec.stack.carries(spec.model.model_type) else None
    named = registry.family_named(spec.model.id, spec.stack.carrying)
    return named if spec.stack.carries(named) else None


def mixes(spec: Spec, known: Family) -> bool:
    """Whether flash attention of the family does not look at position ids."""
    return known.model_type in spec.stack.facts.flash_mixes


def runs_flash(spec: Spec) -> bool:
    """Whether flash2 could be written instead: the GPU, the dtype and the family have it."""
    gpu = spec.hardware.gpu
    return (
        gpu is not None
        and gpu.capability >= (8, 0)
        and spec.text("precision") != "fp32"
        and has_attention(spec, "flash2")
    )


def rows_have_bounds(spec: Spec) -> bool:
    """Whether the trainer tells the model where documents end: flattened rows do, a stream that is cut does not."""
    packed = spec.flag("batch.packing") and spec.get("batch.packing.strategy") != "wrapped"
    return packed or (spec.flag("batch.padding_free") and not spec.flag("batch.packing"))
