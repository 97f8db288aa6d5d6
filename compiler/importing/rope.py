"""Import the scaling of rotary position embeddings (RoPE) as the setting `rope`."""

from __future__ import annotations

from math import ceil

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entry, integer, number, text
from xpc.compiler.language.kinds import Rope
from xpc.compiler.language.model_choices import ROPE

CONTEXT = "original_max_position_embeddings"


def from_mapping(draft: Draft, entry: Entry) -> None:
    """Set `rope` from a mapping in the form of config.json: `rope_scaling: {rope_type: yarn, factor: 4}`."""
    inside = entry.mapping
    named = inside.get("rope_type") or inside.get("type")
    kind = "" if named is None else str(text(named))
    factor = number(inside["factor"]) if "factor" in inside else None
    if kind not in ROPE or factor is None or factor <= 1:
        draft.error(entry, "xpc has no such RoPE scaling", "write yarn, linear, dynamic or llama3")
        return
    known = ("rope_type", "type", "factor", CONTEXT, *ROPE[kind])
    unknown = [one for key, one in inside.items() if key not in known]
    for one in unknown:
        draft.error(one, f"`rope {kind}` has no such parameter")
    numbers = {key: number(inside[key]) for key in ROPE[kind] if key in inside}
    original = integer(inside[CONTEXT]) if CONTEXT in inside else None
    if not unknown and None not in numbers.values():
        parameters = tuple((key, value) for key, value in numbers.items() if value is not None)
        draft.put("model.rope", Rope(kind, factor, original, parameters), entry)
        for one in inside.values():
            draft.mark(one, "mapped", "model.rope")


def by_length(draft: Draft, entry: Entry, length: Entry | None) -> None:
    """Set `rope` from LLaMA-Factory's `rope_scaling: yarn`. The factor is `cutoff_len` divided by the model's context
    length, rounded up. If `cutoff_len` is not longer than the context, nothing is scaled.

    Source: LLaMA-Factory 0.9.5 `model/model_utils/rope.py` (`configure_rope`).
    """
    kind, known = str(text(entry)), registry.find_model(draft.model)
    # 2048 is LLaMA-Factory's default of `cutoff_len`
    tokens = integer(length) if length is not None else 2048
    if entry.empty or kind == "none":
        draft.note(entry, "no scaling")
    elif kind not in ROPE or tokens is None:
        draft.error(entry, "xpc has no such RoPE scaling", "write yarn, linear, dynamic or llama3")
    elif known is None:
        draft.error(
            entry, "the model's context length is not known, so the factor of the scaling is not known",
            f"write `model(rope={kind}(factor=4))` into the spec",
        )  # fmt: skip
    elif tokens <= known.context:
        draft.note(entry, f"`cutoff_len` is within the model's context of {known.context}")
    else:
        draft.put("model.rope", Rope(kind, float(ceil(tokens / known.context))), entry)
