"""Import torchtune's LoRA and QLoRA. Names of layers become those of the published model: `output_proj` becomes
`o_proj`.
"""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, boolean, words
from xpc.compiler.importing.torchtune.keys import FUSED, KEYS, component


def adapter(draft: Draft, entries: Entries, alone: bool) -> None:
    """Set LoRA or QLoRA from the model's component, such as `lora_llama3_8b`. `alone` means a single-device recipe."""
    parts = component(entries.get("model")).split(".")
    name, family = parts[-1], parts[2] if len(parts) > 3 else ""
    inside = {} if "model" not in entries else entries["model"].mapping
    if not name.startswith(("lora_", "qlora_")):
        for key, one in inside.items():
            if key != "_component_":
                draft.error(one, "a spec takes the architecture from the model's config.json")
        return
    quantized = inside.get("quantize_base")
    four = name.startswith("qlora_") or boolean(quantized) is True
    draft.put("qlora" if four else "lora", True, inside["_component_"])
    if quantized is not None:
        draft.mark(quantized, "mapped", "qlora") if four else draft.note(quantized, "it is off")
    if four:
        draft.default("lora.double_quant", True, "torchtune quantizes the scales, too")
    for key in ("lora_rank", "lora_alpha", "lora_dropout"):
        draft.setting(KEYS[f"model.{key}"].setting, inside.get(key))
    for path, value in (("lora.rank", 8), ("lora.alpha", 16.0), ("lora.dropout", 0.0)):
        draft.default(path, value, "not set: torchtune's default")
    dora = inside.get("use_dora")
    if dora is not None:
        draft.note(dora, "it is off") if dora.off else draft.setting("lora.dora", dora)
    _targets(draft, inside, family in FUSED)
    only = entries.get("save_adapter_weights_only")
    if boolean(only):
        draft.note(only, "only adapters are saved")
    elif four or not alone:
        draft.drop(
            "save_adapter_weights_only",
            "torchtune saves merged weights and adapters; the spec saves only adapters, because "
            + ("a run does not merge into a 4-bit base" if four else "no process has the complete weights"),
            only,
        )
    else:
        draft.put("save.merge", True, only, "torchtune also saves the merged weights")
    if draft.value("model.dtype") == "bf16":
        draft.differs("lora_rank", "torchtune keeps the adapters in bf16; a bundle keeps them in fp32")


def _targets(draft: Draft, inside: Entries, fused: bool) -> None:
    attention, mlp, output = (
        inside.get(key) for key in ("lora_attn_modules", "apply_lora_to_mlp", "apply_lora_to_output")
    )
    names = words(attention) or []
    known = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj"}
    layers: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    if fused:
        known = {**dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"), "output_proj": "o_proj"}
        layers = ("gate_up_proj", "down_proj")
    if attention is not None and not set(names) <= set(known):
        draft.error(attention, "the value must be a list of q_proj, k_proj, v_proj and output_proj")
        return
    on = [one for one in (mlp, output) if boolean(one)]
    modules = [known[one] for one in names]
    modules += layers if mlp in on else ()
    if output is not None and output in on:
        draft.drop("apply_lora_to_output", "torchtune also trains an adapter on the output layer; the spec does not",
                      output)  # fmt: skip
    for one in (attention, mlp, output):
        if one is not None and one is output and one in on:
            continue
        if one is not None and (one in on or one is attention):
            draft.put("lora.targets", tuple(dict.fromkeys(modules)), one)
        elif one is not None:
            draft.note(one, "it is off")
    if fused and {"q_proj", "k_proj", "v_proj"} & set(names):
        draft.differs(
            "lora_attn_modules",
            "torchtune has separate q_proj, k_proj and v_proj with an adapter each; the published model has one layer "
            "for all three, with one adapter",
            attention,
        )
