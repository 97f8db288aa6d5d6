"""Import axolotl's adapters: rank, target modules, quantization of the base model, LoRA+ and PEFT's options."""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_stated, text, words
from xpc.compiler.importing.trl import model as models
from xpc.compiler.registry.family_modules import family_modules

BEYOND = ("lm_head", "embed_tokens", "embed_out", "wte", "wpe", "output", "embed_in")
"""Linear modules to which `lora_target_linear` adds no adapter; `lora_target_modules` can name them too."""
READ = ("lora_model_dir", "lora_r", "lora_alpha", "lora_dropout", "lora_target_linear", "lora_target_modules",
        "peft_init_lora_weights")  # fmt: skip
"""Keys about adapters that functions of this module import. The remaining keys are in ADAPTER_OPTIONS."""
ADAPTER_OPTIONS = {
    "peft_use_rslora": "lora.rslora", "peft_use_dora": "lora.dora", "lora_modules_to_save": "lora.modules_to_save",
    "lora_target_parameters": "lora.parameters", "loraplus_lr_ratio": "lora.lr_ratio",
    "loraplus_lr_embedding": "lora.embedding_lr",
}  # fmt: skip
"""Maps keys about adapters to the setting with the same meaning. The order matters: the setting of
`loraplus_lr_embedding` is legal only after that of `loraplus_lr_ratio`.
"""


def adapter(draft: Draft, named: Entries) -> None:
    """Set the adapter, its target modules, and the quantization of its base model. For any other `adapter` than lora
    and qlora, report that the remaining keys about adapters have no effect.
    """
    kind, four, eight = named.get("adapter"), named.get("load_in_4bit"), named.get("load_in_8bit")
    word = str(text(kind)).lower() if is_stated(kind) else ""
    if kind is None or word not in ("lora", "qlora"):
        _no_adapter(draft, named, word)
        return
    bits = 4 if boolean(four) else 8 if boolean(eight) else None
    if word == "qlora" or bits == 4:
        draft.put("qlora", True, kind)
        bits = 4
    else:
        draft.put("lora", True, kind)
    for switch, width in ((four, 4), (eight, 8)):
        if switch is not None and (switch.off or bits != width):
            draft.note(switch, "it is off" if switch.off else "the base has 4 bits")
        elif switch is not None and width == 8:
            draft.put("lora.bits", 8, switch)
        elif switch is not None:
            draft.put("qlora", True, switch)
    for key, path in (("lora_r", "lora.rank"), ("lora_alpha", "lora.alpha"), ("lora_dropout", "lora.dropout")):
        draft.setting(path, named.get(key))
    draft.default("lora.dropout", 0.0, "not set: axolotl's default")
    _targets(draft, named)
    models.adapter_options(draft, named, ADAPTER_OPTIONS)
    models.initial(draft, named.get("peft_init_lora_weights"))
    models.continued(draft, named.get("lora_model_dir"))
    _quantization(draft, named.get("bnb_config_kwargs"), bits == 4)


def _no_adapter(draft: Draft, named: Entries, word: str) -> None:
    """Report that no adapter is trained. `word` is the value of `adapter` if xpc does not support this kind, such as
    `ia3`.
    """
    inside = [named[key] for key in ("adapter", *READ, *ADAPTER_OPTIONS) if key in named]
    if word:
        draft.error(inside[0], "xpc supports lora and qlora")
    for one in inside:
        draft.note(one, "no adapter is trained")
    for switch in (named.get("load_in_4bit"), named.get("load_in_8bit")):
        if boolean(switch):
            draft.error(switch, "quantized weights cannot be trained without an adapter")
        elif switch is not None:
            draft.note(switch, "it is off")


def _quantization(draft: Draft, options: Entry | None, on: bool) -> None:
    """Import the options of bitsandbytes. `on` is true if the base model is quantized to 4 bits."""
    for key, one in ({} if options is None else options.mapping).items():
        if key == "bnb_4bit_use_double_quant" and on:
            draft.setting("lora.double_quant", one)
        elif not on or (key == "bnb_4bit_quant_type" and one.value == "nf4"):
            draft.note(one, "a bundle does the same")
        else:
            draft.error(one, "a bundle quantizes to nf4, and computes in the run's precision")
    if on:
        draft.default("lora.double_quant", True, "not set: axolotl's default")


def _targets(draft: Draft, named: Entries) -> None:
    linear, modules = named.get("lora_target_linear"), named.get("lora_target_modules")
    names = words(modules) or []
    if boolean(linear) and not {*names} & {*BEYOND}:
        draft.put("lora.targets", "all-linear", linear)
        draft.note(modules, "`lora_target_linear` selects every linear layer")
    elif boolean(linear) and modules is not None:
        draft.note(linear, "`lora_target_modules` lists them")
        if {*names} >= {*family_modules()["llama"].linear.values()}:
            draft.put("lora.targets", tuple(names), modules)
        else:
            why = "`lora_target_linear` adds all linear layers to the list, and a spec adapts only the listed modules"
            draft.error(modules, why, "list every module, and leave `lora_target_linear` out")
    else:
        draft.note(linear, "it is off")
        models.targets(draft, modules)
