"""Import how a script loads its model: name, dtype, quantization and adapters, also by the functions of Unsloth."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xpc.compiler.importing import keys
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python import program
from xpc.compiler.importing.python.entries import Entries
from xpc.compiler.importing.python.interpreter.functions import TRAINERS
from xpc.compiler.importing.python.interpreter.values import Argument, Object, Unknown
from xpc.compiler.importing.python.program import HEADS, Model
from xpc.compiler.importing.text.entries import CLASSIFIER, OTHER_HEAD, OTHER_TRAINER, Entry, Unreadable, is_on
from xpc.compiler.importing.text.values import DTYPES
from xpc.compiler.importing.trl import versions
from xpc.compiler.language.methods import METHODS

KEYS = keys.load("python/keys.toml")
OTHER_ADAPTERS = {"VeraConfig": "vera", "LoHaConfig": "loha", "MissConfig": "miss"}
"""Maps peft's configuration classes, except LoraConfig, to xpc's name of the adapter: `VeraConfig` to `vera`."""
QUANTIZED = ("-unsloth-bnb-4bit", "-bnb-4bit")
"""Endings of the names of repositories whose weights are already quantized."""
HARMLESS = ("use_cache", "pretraining_tp", "torch_dtype", "pad_token_id", "bos_token_id", "dtype", "name_or_path")
"""Attributes of a model's config that do not change the training."""
ENCODERS = frozenset(
    ("bert", "roberta", "distilbert", "distilroberta", "deberta", "electra", "albert", "modernbert", "longformer")
)
"""Words that occur in the names of encoder models, such as `bert`."""
UNSLOTH_LENGTH = 2048
"""Unsloth's default for `max_seq_length`, to which it also truncates rows, in tokens."""


def gather(entries: Entries, model: Model, trainer: Object) -> None:
    """Add the arguments of the model and of the adapter to the entries, under TRL's names.

    Raises Unreadable if the model does not generate text, except for the reward model of a RewardTrainer.
    """
    loaded = model.loaded
    for unknown in model.unknown[:1]:
        entries.problem("model", unknown, "what happens to the model before training")
    if loaded is not None:
        _head(loaded, trainer)
        _block(entries, "model", loaded)
    merged = any(one.last == "merge_and_unload" for one in model.steps)
    if model.name is not None:
        _encoder(model.name)
        entries.add("model_name_or_path", model.name)
    elif merged and model.continued is not None:
        # The script merges an adapter into its base before it trains. The spec's model gets the adapter's name, and
        # the user has to merge this adapter, too.
        entries.add("model_name_or_path", model.continued)
    owners = (trainer.keywords.get("model_init_kwargs"), _init_kwargs(entries))
    for owner in owners:
        if owner is not None and isinstance(owner.value, dict):
            locations = getattr(owner.value, "locations", {})
            call = Object(
                "from_pretrained",
                [],
                {str(key): Argument(value, locations.get(key, owner.location)) for key, value in owner.value.items()},
                owner.location,
            )
            _block(entries, "model", call)
    if model.dtype is not None:
        entries.add("dtype", model.dtype)
        entries.values.pop("torch_dtype", None)
    _quantization(entries, loaded, owners)
    if loaded is not None and is_unsloth(loaded):
        _unsloth(entries, loaded, trainer)
    _adapter(entries, model, trainer)
    _checkpointing(entries, model)


def _init_kwargs(entries: Entries) -> Argument | None:
    """The argument `model_init_kwargs` of the trainer's configuration, which the script passes or assigns later; None
    if there is none.
    """
    config = entries.config
    entries.values.pop("model_init_kwargs", None)
    if config is None:
        return None
    assigned = config.attributes.get("model_init_kwargs")
    if isinstance(assigned, dict):
        return Argument(assigned, config.locations.get("model_init_kwargs", config.location))
    return config.keywords.get("model_init_kwargs")


VISION = ("ImageTextToText", "Vision2Seq", "FastVision", "Processor")
"""Parts of the names of classes that load a vision-language model: `Vision2Seq` in `AutoModelForVision2Seq`."""


def _head(loaded: Object, trainer: Object) -> None:
    head = next((one for one in HEADS if one in loaded.path), "")
    reward = trainer.last == "RewardTrainer" and head == "ForSequenceClassification"
    if any(one in loaded.path for one in VISION):
        why = "it trains a vision-language model with its vision tower, which a run of a spec freezes"
        raise Unreadable(why, loaded.location.line, OTHER_TRAINER)
    if head and not reward:
        raise Unreadable(
            f"its model has another head ({loaded.path.split('.')[-2]}): xpc trains only models that generate text",
            loaded.location.line,
            CLASSIFIER if head == "ForSequenceClassification" else OTHER_HEAD,
        )
    labels = loaded.keywords.get("num_labels")
    if labels is not None and trainer.last != "RewardTrainer":
        why = "it trains a classifier, and xpc trains only models that generate text"
        raise Unreadable(why, loaded.location.line, CLASSIFIER)


def _encoder(name: Argument) -> None:
    """Raise Unreadable for the name of an encoder, such as `distilroberta-base`."""
    words = re.findall("[a-z]+", str(name.value).rpartition("/")[2].lower()) if isinstance(name.value, str) else []
    if not ENCODERS.isdisjoint(words):
        why = f"its model is an encoder ({name.value}): xpc trains only models that generate text"
        raise Unreadable(why, name.location.line, OTHER_HEAD)


def is_unsloth(loaded: Object) -> bool:
    """Whether the call that loads the model is Unsloth's."""
    return "unsloth" in loaded.path or "FastLanguageModel" in loaded.path or ".FastModel." in loaded.path


def _block(entries: Entries, block: str, call: Object) -> None:
    """Add the keyword arguments of a call under TRL's names, which are in the section `block` of python/keys.toml."""
    assigned = {
        name: Argument(one, call.locations[name])
        for name, one in call.attributes.items()
        if call.last.endswith("Config") and name in call.locations and not name.startswith(("<", "["))
    }
    for name, given in {**call.keywords, **assigned}.items():
        if name in ("model_name", "pretrained_model_name_or_path", "model", "peft_config"):
            continue
        row = KEYS.get(f"{block}.{name}")
        if name == "config" and _is_own_config(given.value):
            continue
        if name.startswith("**"):
            entries.problem("**", given.value, f"arguments of `{call.last}`", given.location)
        elif row is not None and row.renamed:
            entries.add(row.renamed, given)
        elif row is None or not row.read:
            entries.others.append((f"{block}.{name}", given))


def _is_own_config(value: object) -> bool:
    """Whether a value is `AutoConfig.from_pretrained(...)` without changes that have an effect in training."""
    if not isinstance(value, Object) or not value.path.endswith("AutoConfig.from_pretrained"):
        return False
    set_ = {name for name in value.attributes if name in value.locations}
    given = {name for name in value.keywords if not name.startswith("pretrained_")}
    harmless = {"trust_remote_code", "token", "use_auth_token", "cache_dir", "revision", "attn_implementation"}
    return set_ <= set(HARMLESS) and given <= harmless | set(HARMLESS)


def _quantization(entries: Entries, loaded: Object | None, owners: Iterable[Argument | None]) -> None:
    given = None if loaded is None else loaded.keywords.get("quantization_config")
    for one in owners:
        if given is None and one is not None and isinstance(one.value, dict) and "quantization_config" in one.value:
            given = Argument(one.value["quantization_config"], one.location)
    direct = [one for one in ("load_in_4bit", "load_in_8bit") if loaded is not None and one in loaded.keywords]
    for name in direct:
        assert loaded is not None
        entries.add(name, loaded.keywords[name])
    if given is None or given.value is None:
        four = entries.values.get("load_in_4bit")
        if four is not None and four.value is True and loaded is not None and not is_unsloth(loaded):
            entries.add("bnb_4bit_quant_type", Argument("fp4", loaded.keywords["load_in_4bit"].location))
        return
    value = given.value
    if isinstance(value, Object) and value.last == "BitsAndBytesConfig":
        _block(entries, "quantization", value)
        on = entries.values.get("load_in_4bit")
        if on is not None and on.value is True and "bnb_4bit_quant_type" not in value.keywords:
            entries.add("bnb_4bit_quant_type", Argument("fp4", value.location))  # fp4 is transformers' default
    elif isinstance(value, Object) and value.last == "Mxfp4Config" and _dequantizes(value):
        pass  # the weights are dequantized while loading
    else:
        unknown = (
            value
            if isinstance(value, Unknown)
            else Unknown("the import does not read this kind of quantization", given.location)
        )
        entries.problem("quantization_config", unknown, "how the model is quantized", given.location)


def _dequantizes(config: Object) -> bool:
    given = config.argument("dequantize", 1)
    return given is not None and given.value is True


def _unsloth(entries: Entries, loaded: Object, trainer: Object) -> None:
    """Add Unsloth's defaults: bf16, and a base model in 4 bits (nf4 with double quantization) unless the script selects
    another way of loading.
    """
    location = loaded.location
    others = [loaded.keywords.get(one) for one in ("load_in_8bit", "load_in_16bit", "full_finetuning", "load_in_fp8")]
    if any(one is not None and one.value is True for one in others):
        entries.values.pop("load_in_4bit", None)
    elif "load_in_4bit" not in loaded.keywords:
        entries.add("load_in_4bit", Argument(True, location))
    four = entries.values.get("load_in_4bit")
    if four is not None and four.value is True:
        entries.add("use_bnb_nested_quant", Argument(True, location))
    kind = entries.values.get("dtype")
    if kind is None or kind.value is None:
        entries.add("dtype", Argument("bfloat16", location))
    length = loaded.argument("max_seq_length", 1)
    grouped = METHODS[TRAINERS.get(trainer.last, "sft")].grouped
    if length is None or length.value is None:
        length = Argument(UNSLOTH_LENGTH, location)
    if not grouped and not {"max_length", "max_seq_length"} & set(entries.values):
        entries.add("max_seq_length" if entries.old else "max_length", length)
    name = entries.values.get("model_name_or_path")
    for end in QUANTIZED:
        if name is not None and isinstance(name.value, str) and name.value.endswith(end):
            entries.values["model_name_or_path"] = Entry(name.key, name.value.removesuffix(end), name.file, name.line)


def _adapter(entries: Entries, model: Model, trainer: Object) -> None:
    given = program.argument(trainer, "peft_config")
    if given is None or given.value is None:
        given = model.adapter
    if model.unsloth_adapter is not None:
        call = model.unsloth_adapter
        entries.add("use_peft", Argument(True, call.location))
        _block(entries, "lora", call)
        return
    if given is None or given.value is None:
        if model.continued is not None:
            entries.add("use_peft", Argument(True, model.continued.location))
        return
    value = program.revealed(given.value)
    if isinstance(given.value, Unknown):
        entries.problem("peft_config", given.value, "whether adapters are trained", given.location)
    if isinstance(value, Object) and value.last in ("LoraConfig", "LoRAConfig"):
        entries.add("use_peft", Argument(True, value.location))
        _block(entries, "lora", value)
    elif isinstance(value, Object) and value.last in OTHER_ADAPTERS:
        kind = OTHER_ADAPTERS[value.last]
        entries.add("use_peft", Argument(True, value.location))
        entries.add("adapter.kind", Argument(kind, value.location))
        _block(entries, kind, value)
    elif isinstance(value, Object) and value.last == "BoneConfig":
        entries.problem(
            "peft_config", None, "peft replaced Bone by MiSS: the import reads only `MissConfig`", given.location
        )
    elif not isinstance(given.value, Unknown):
        entries.problem("peft_config", None, "the import does not read this kind of adapter", given.location)


def _checkpointing(entries: Entries, model: Model) -> None:
    """Add activation checkpointing that the script turns on outside the trainer's configuration, for example by
    `model.gradient_checkpointing_enable()`.
    """
    location = model.checkpointing
    if model.prepared is not None:
        on = model.prepared.argument("use_gradient_checkpointing", 1)
        location = model.prepared.location if on is None or on.value is not False else location
    call = model.unsloth_adapter
    if call is not None:
        own = call.keywords.get("use_gradient_checkpointing")
        location = call.location if own is None or own.value not in (False, None) else location
    stated = entries.values.get("gradient_checkpointing")
    if location is not None and not is_on(stated):
        entries.values["gradient_checkpointing"] = location.entry("gradient_checkpointing", True)


MODERN = "0.26"
"""The first version of TRL that runs with transformers 5. By default, transformers 5 loads weights in the dtype of the
checkpoint.
"""


def loaded_dtype(draft: Draft, entries: Entries, model: Model) -> None:
    """Warn about a `from_pretrained` without a dtype, because transformers 4 loads weights in fp32, and transformers 5
    in the dtype of the checkpoint.
    """
    order = versions.numbers()
    modern = bool(draft.fitting) and order.index(draft.fitting[-1]) >= order.index(MODERN)
    four, loaded = entries.values.get("load_in_4bit"), model.loaded
    if loaded is None or not modern or {"dtype", "torch_dtype"} & set(entries.values) or (four and four.value is True):
        return
    draft.warn(
        loaded.location.entry("from_pretrained"),
        "it has no dtype: transformers 4 loads the weights in fp32, and transformers 5 in the type of the checkpoint, "
        "nearly always bf16; the spec has fp32",
        "write `model(dtype = bf16)` to load the weights in bf16",
    )


def quantization_kind(draft: Draft, entries: Entries) -> None:
    """Report a difference if the script's base is quantized to fp4, which is transformers' default."""
    kind = entries.values.get("bnb_4bit_quant_type")
    if kind is not None and kind.value == "fp4":
        draft.differs(kind.key, "the script quantizes to fp4, transformers' default; the spec quantizes to nf4", kind)
        entries.values[kind.key] = Entry(kind.key, "nf4", kind.file, kind.line)


def compute_dtype(draft: Draft, entries: Entries, stated: Entry | None) -> None:
    """Report a difference if the script's quantized layers compute in another dtype (`stated`) than the spec's
    precision.
    """
    four, kind = entries.values.get("load_in_4bit"), entries.values.get("bnb_4bit_quant_type")
    if four is None or four.value is not True or (stated is None and kind is None):
        return
    wanted = "fp32" if stated is None else DTYPES.get(str(stated.value).removeprefix("torch."), "")
    if draft.value("precision") == wanted:
        draft.note(stated, "a bundle does the same")
        return
    draft.note(stated, "in the spec, quantized layers compute in the precision of the run")
    draft.differs(
        "bnb_4bit_compute_dtype",
        f"the script computes quantized layers in {wanted or 'another type'}"
        f"{', the default' if stated is None else ''}; the spec computes them in its precision",
        stated,
    )
