"""Import which weights LLaMA-Factory trains: all weights, some layers, or adapters (LoRA or OFT); from both layouts of
its files.

Source: LLaMA-Factory 0.9.6.dev0, hparams/finetuning_args.py, model/adapter.py, v1/plugins/model_plugins/peft.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory.keys import ADAPTER_OPTIONS, FROZEN, LORA, OFT, PISSA, TUNING_KEYS
from xpc.compiler.importing.text.entries import Entries, Entry, integer, is_on, is_stated, text, words
from xpc.compiler.importing.trl import model as models
from xpc.compiler.rules.numerics.precision import PACKED_NAME

WORDS = ("lora", "oft", "freeze", "full")
SECOND = {"r": "lora.rank", "lora_alpha": "lora.alpha", "lora_dropout": "lora.dropout"}
"""Maps each key of `peft_config` in the newer layout (v1) to its setting."""
WHY = "not set: LLaMA-Factory's default"


def tuning(draft: Draft, named: Entries) -> None:
    """Set which weights are trained. `finetuning_type` is lora, oft, freeze or full. Keys of the types that are not
    chosen have no effect.
    """
    kind, second = named.get("finetuning_type"), named.get("peft_config")
    word = "lora" if kind is None else str(text(kind)).lower()
    table: Entries = named
    newer = "train_dataset" in named or "dist_config" in named
    if newer:
        word = "full"
        if is_stated(second):
            table = second.mapping
            word = str(text(table["name"]) if "name" in table else "").lower()
            kind = table.get("name", second)
    if word not in WORDS:
        location = kind or second or next(iter(named.values()))
        draft.error(location, f"xpc has no {word} tuning", f"it has {', '.join(WORDS)}")
        return
    draft.mark(kind, "mapped", word)
    bits = _bits(draft, named, word)
    mine: tuple[str, ...] = ()
    if word == "freeze":
        mine = FROZEN
        _freeze(draft, table, kind)
    elif word == "oft":
        mine = (*OFT, *ADAPTER_OPTIONS, "oft_target")
        _oft(draft, table, kind, named.get("quantization_bit"), bits)
    elif word == "lora":
        mine = (*LORA, *SECOND, *ADAPTER_OPTIONS, *PISSA, "lora_target", "target_modules")
        _lora(draft, table, kind, SECOND if newer else LORA, named.get("quantization_bit"), bits)
    why = "all weights are trained" if word == "full" else f"{word} does not read it"
    for key in TUNING_KEYS:
        if key not in mine and key in table:
            draft.note(table[key], why)


def _bits(draft: Draft, named: Entries, word: str) -> int | None:
    """Import the keys about quantization. Returns the number of bits in `quantization_bit`, or None. LLaMA-Factory
    ignores the key for weights that are quantized already.

    Source: LLaMA-Factory 0.9.5, model/model_utils/quantization.py (`configure_quantization`).
    """
    bit = named.get("quantization_bit")
    bits = integer(bit) if is_stated(bit) else None
    if bit is not None and bit.empty:
        draft.note(bit, "nothing is quantized")
    if bit is not None and bits is not None and (bits not in (4, 8) or word not in ("lora", "oft")):
        draft.error(bit, "a quantized base needs 4 or 8 bits, and lora or oft")
    packed = PACKED_NAME.search(str(named["model_name_or_path"].value)) if "model_name_or_path" in named else None
    if bits is not None and packed is not None and not packed[1].lower().startswith("bnb"):
        draft.note(bit, f"the weights of this model are quantized already ({packed[1]})")
        bits = None
    way = named.get("quantization_method")
    if way is not None and str(way.value).lower() in ("bnb", "bitsandbytes"):
        draft.note(way, "bitsandbytes, as a bundle quantizes")
    elif way is not None:
        draft.error(way, "a bundle quantizes by bitsandbytes", "write `quantization_method: bnb`")
    kind, twice = named.get("quantization_type"), named.get("double_quantization")
    if kind is not None and (kind.value == "nf4" or bits != 4):
        draft.note(kind, "a bundle does the same")
    elif kind is not None:
        draft.error(kind, "4 bits are nf4")
    if twice is not None and bits == 4:
        draft.setting("lora.double_quant", twice)
    elif twice is not None:
        draft.note(twice, "the base is not quantized to 4 bits")
    return bits


def _lora(
    draft: Draft, table: Entries, kind: Entry | None, paths: Mapping[str, str], bit: Entry | None, bits: int | None
) -> None:
    location = kind or next((table[key] for key in paths if key in table), None)
    switch = "qlora" if bits == 4 else "lora"
    draft.put(
        switch, True, bit if bits == 4 else location, "" if location else "not set: LLaMA-Factory trains adapters"
    )
    if bits == 8:
        draft.put("lora.bits", 8, bit)
    elif bits == 4:
        draft.default("lora.double_quant", True, WHY)
    for key, path in paths.items():
        draft.setting(path, table.get(key))
    draft.default("lora.rank", 8, WHY)
    rank = int(draft.settings["lora.rank"].text)
    if paths is SECOND:
        draft.default("lora.alpha", 16.0, WHY)
        draft.default("lora.dropout", 0.05, WHY)
    draft.default("lora.alpha", float(2 * rank), "not set: LLaMA-Factory takes twice the rank")
    draft.default("lora.dropout", 0.0, WHY)
    _targets(draft, table.get("target_modules" if paths is SECOND else "lora_target"))
    models.adapter_options(draft, table, ADAPTER_OPTIONS)
    _pissa(draft, table)


def _pissa(draft: Draft, table: Entries) -> None:
    """Set PiSSA as the initialization of adapters; `pissa_iter: -1` means an exact decomposition.

    Source: LLaMA-Factory 0.9.5, model/adapter.py.
    """
    init, iterations, converts = (table.get(key) for key in PISSA)
    if not is_on(init):
        for one in (init, iterations, converts):
            draft.note(one, "`pissa_init` is not on" if one is not init else "it is off")
        return
    draft.put("lora.init", "pissa", init)
    if iterations is None:
        draft.default("lora.init_iterations", 16, WHY)
    elif integer(iterations) == -1:
        draft.note(iterations, "PiSSA is computed exactly")
    else:
        draft.setting("lora.init_iterations", iterations)
    draft.note(converts, "a bundle always saves the adapter for the original base model")


def _oft(draft: Draft, table: Entries, kind: Entry | None, bit: Entry | None, bits: int | None) -> None:
    """Set OFT (orthogonal rotations). Either `oft_rank` or `oft_block_size` decides the size of the blocks, and the
    other key is 0.
    """
    draft.put("oft", True, kind)
    if bits in (4, 8):
        draft.put("lora.bits", bits, bit)
    if bits == 4:
        draft.default("lora.double_quant", True, WHY)
    for key, path in OFT.items():
        one = table.get(key)
        if one is not None and (one.empty or (integer(one) == 0 and path != "lora.dropout")):
            draft.note(one, "it is 0 or empty")
        elif one is not None:
            draft.setting(path, one)
    if not draft.has("lora.rank"):
        draft.default("lora.block_size", 32, WHY)
    draft.default("lora.dropout", 0.0, WHY)
    _targets(draft, table.get("oft_target"))
    for key in ("use_rslora", "use_dora", "loraplus_lr_ratio", "loraplus_lr_embedding"):
        draft.note(table.get(key), "oft does not read it")
    models.adapter_options(draft, table, {"additional_target": "lora.modules_to_save"})


def _targets(draft: Draft, target: Entry | None) -> None:
    if is_stated(target):
        models.targets(draft, target)
    else:
        draft.default("lora.targets", "all-linear", "not set: LLaMA-Factory takes every linear layer")


def _freeze(draft: Draft, table: Entries, kind: Entry | None) -> None:
    """Set which weights `finetuning_type: freeze` trains: the last N layers for the number N, or the first N for -N.
    The file may restrict this to some modules of these layers, and may add modules outside of the layers.
    """
    draft.put("freeze", True, kind)
    layers, inside = table.get("freeze_trainable_layers"), table.get("freeze_trainable_modules")
    count = integer(layers) if is_stated(layers) else None
    if layers is not None and layers.empty:
        draft.note(layers, "null: the last 2 layers")
    elif layers is not None and count is None:
        draft.error(layers, "the value must be a whole number")
    elif layers is not None and count == 0 and "freeze_extra_modules" not in table:
        draft.error(layers, "nothing is trained: the value 0 trains no layer, and `freeze_extra_modules` is not set")
    elif layers is not None and count == 0:
        draft.note(layers, "no layer is trained")
    elif layers is not None and count is not None:
        draft.put(f"freeze.except_{'last' if count > 0 else 'first'}", abs(count), layers)
    if not draft.has("freeze.except_first") and count != 0:
        draft.default("freeze.except_last", 2, WHY)
    if inside is not None and words(inside) == ["all"]:
        draft.note(inside, "every module of the trained layers")
    elif inside is not None:
        models.adapter_options(draft, table, {"freeze_trainable_modules": "freeze.layer_modules"})
    models.adapter_options(draft, table, {"freeze_extra_modules": "freeze.except_modules"})


def quantized(draft: Draft, entry: Entry | None) -> None:
    """Import `quant_config` of the newer layout (v1): a base model in 4 or 8 bits under an adapter.

    Source: v1/plugins/model_plugins/quantization.py.
    """
    if not is_stated(entry):
        draft.note(entry, "nothing is quantized")
        return
    inside = entry.mapping
    name, bit, twice, computed = (
        inside.get(key) for key in ("name", "quantization_bit", "double_quantization", "compute_dtype")
    )
    bits = integer(bit)
    if name is not None and text(name) not in ("auto", "bnb"):
        draft.error(name, "a bundle quantizes by bitsandbytes", "write `name: bnb`")
    elif name is not None:
        draft.note(name, "bitsandbytes, as a bundle quantizes")
    lora = draft.settings.pop("lora", None)
    if bit is None or bits not in (4, 8) or lora is None:
        draft.error(bit or entry, "the value must be 4 or 8, and the run must train adapters")
        return
    if bits == 8:
        draft.settings["lora"] = lora
        draft.put("lora.bits", 8, bit)
        return
    draft.put("qlora", True, bit)
    draft.setting("lora.double_quant", twice)
    draft.default("lora.double_quant", True, WHY)
    draft.mark(computed, "reserved", "# compute_dtype")
    draft.differs(
        "quant_config",
        "without `compute_dtype`, LLaMA-Factory computes with quantized weights in float16; the spec computes in "
        "the precision of the run",
        computed,
    )
