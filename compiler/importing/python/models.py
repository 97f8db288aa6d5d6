"""Read how a script loads its model and tokenizer: quantization, adapters, Unsloth's functions, and chat templates."""

from __future__ import annotations

from xpc.compiler.importing import keys
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python import program
from xpc.compiler.importing.python.entries import Entries, entry
from xpc.compiler.importing.python.interpreter.functions import TRAINERS
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Argument, Name, Object, Unknown
from xpc.compiler.importing.python.program import HEADS, Model
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.compiler.importing.text.values import DTYPES
from xpc.compiler.importing.trl import versions
from xpc.compiler.language.methods import METHODS

KEYS = keys.load("python/keys.toml")
QUANTIZED = ("-unsloth-bnb-4bit", "-bnb-4bit")
"""Ends of the names of repositories with weights that are quantized already."""
TEMPLATES = {
    "chatml": "chatml",
    "llama-3": "llama3",
    "llama3": "llama3",
    "llama-3.1": "llama3.1",
    "llama-31": "llama3.1",
    "gemma": "gemma",
    "gemma-3": "gemma3",
    "gemma3": "gemma3",
    "qwen-2.5": "qwen2.5",
    "qwen2.5": "qwen2.5",
    "qwen-25": "qwen2.5",
    "qwen25": "qwen2.5",
    "qwen3": "qwen3",
    "qwen-3": "qwen3",
    "mistral": "mistral",
    "phi-3": "phi3",
    "phi3": "phi3",
    "zephyr": "zephyr",
    "vicuna": "vicuna",
}
"""Unsloth's chat templates that the language has."""
LORA_DEFAULTS = {"lora.rank": 8, "lora.alpha": 8.0, "lora.dropout": 0.0}
UNSLOTH_DEFAULTS = {"lora.rank": 16, "lora.alpha": 16.0, "lora.dropout": 0.0}
UNSLOTH_LENGTH = 2048
"""Unsloth's default of `max_seq_length`, at which it cuts rows, too."""
UNSLOTH_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def gather(entries: Entries, model: Model, trainer: Object, machine: Machine) -> None:
    """Add the model's arguments to the entries under TRL's names. Raises Unreadable for a model with another head."""
    loaded = model.loaded
    for unknown in model.unknown[:1]:
        entries.problem("model", unknown, "what happens to the model before training")
    if loaded is not None:
        _head(loaded, trainer)
        _block(entries, "model", loaded)
    if model.name is not None:
        entries.add("model_name_or_path", model.name)
    for owner in (trainer.keywords.get("model_init_kwargs"), _init_kwargs(entries)):
        if owner is not None and isinstance(owner.value, dict):
            places = getattr(owner.value, "places", {})
            call = Object(
                "from_pretrained",
                [],
                {str(key): Argument(value, places.get(key, owner.place)) for key, value in owner.value.items()},
                owner.place,
            )
            _block(entries, "model", call)
    if model.dtype is not None:
        entries.add("dtype", model.dtype)
        entries.values.pop("torch_dtype", None)
    _quantization(entries, loaded)
    if loaded is not None and is_unsloth(loaded):
        _unsloth(entries, loaded, trainer)
    _adapter(entries, model, trainer)
    _checkpointing(entries, model)
    _tokenizer(entries, model, trainer)


def _init_kwargs(entries: Entries) -> Argument | None:
    config = entries.config
    entries.values.pop("model_init_kwargs", None)
    return config.keywords.get("model_init_kwargs") if config is not None else None


def _head(loaded: Object, trainer: Object) -> None:
    head = next((one for one in HEADS if one in loaded.path), "")
    reward = trainer.last == "RewardTrainer" and head == "ForSequenceClassification"
    if head and not reward:
        raise Unreadable(
            f"its model has another head ({loaded.path.split('.')[-2]}): the language trains models that generate text",
            loaded.place.line,
        )
    labels = loaded.keywords.get("num_labels")
    if labels is not None and trainer.last != "RewardTrainer":
        raise Unreadable("it trains a classifier, and the language trains models that generate text", loaded.place.line)
    if "FastVision" in loaded.path or "Processor" in loaded.path:
        raise Unreadable("it trains a vision model, and the language trains text models", loaded.place.line)


def is_unsloth(loaded: Object) -> bool:
    """Whether Unsloth loads the model."""
    return "unsloth" in loaded.path or "FastLanguageModel" in loaded.path or ".FastModel." in loaded.path


def _block(entries: Entries, block: str, call: Object) -> None:
    """Add the keywords of a call under TRL's names, as the table of its kind renames them."""
    for name, given in call.keywords.items():
        if name in ("model_name", "pretrained_model_name_or_path", "model", "peft_config"):
            continue
        row = KEYS.get(f"{block}.{name}")
        if name.startswith("**"):
            entries.problem("**", given.value, f"arguments of `{call.last}`", given.place)
        elif row is not None and row.renamed:
            entries.add(row.renamed, given)
        elif row is None or not row.read:
            entries.others.append((f"{block}.{name}", given))


def _quantization(entries: Entries, loaded: Object | None) -> None:
    given = None if loaded is None else loaded.keywords.get("quantization_config")
    if given is None and entries.config is not None:
        init = entries.config.keywords.get("model_init_kwargs")
        if init is not None and isinstance(init.value, dict) and "quantization_config" in init.value:
            given = Argument(init.value["quantization_config"], init.place)
    direct = [one for one in ("load_in_4bit", "load_in_8bit") if loaded is not None and one in loaded.keywords]
    for name in direct:
        assert loaded is not None
        entries.add(name, loaded.keywords[name])
    if given is None or given.value is None:
        four = entries.values.get("load_in_4bit")
        if four is not None and four.value is True and loaded is not None and not is_unsloth(loaded):
            entries.add("bnb_4bit_quant_type", Argument("fp4", loaded.keywords["load_in_4bit"].place))
        return
    value = given.value
    if isinstance(value, Object) and value.last == "BitsAndBytesConfig":
        _block(entries, "quantization", value)
        on = entries.values.get("load_in_4bit")
        if on is not None and on.value is True and "bnb_4bit_quant_type" not in value.keywords:
            entries.add("bnb_4bit_quant_type", Argument("fp4", value.place))  # the default of transformers
    else:
        unknown = value if isinstance(value, Unknown) else Unknown("this form of quantization is not read", given.place)
        entries.problem("quantization_config", unknown, "how the model is quantized", given.place)


def _unsloth(entries: Entries, loaded: Object, trainer: Object) -> None:
    """Unsloth's defaults: 4 bits unless another form is on, nf4 with quantized constants, and bf16 weights."""
    place = loaded.place
    others = [loaded.keywords.get(one) for one in ("load_in_8bit", "load_in_16bit", "full_finetuning", "load_in_fp8")]
    if any(one is not None and one.value is True for one in others):
        entries.values.pop("load_in_4bit", None)
    elif "load_in_4bit" not in loaded.keywords:
        entries.add("load_in_4bit", Argument(True, place))
    four = entries.values.get("load_in_4bit")
    if four is not None and four.value is True:
        entries.add("use_bnb_nested_quant", Argument(True, place))
    kind = entries.values.get("dtype")
    if kind is None or kind.value is None:
        entries.add("dtype", Argument("bfloat16", place))
    length = loaded.argument("max_seq_length", 1)
    grouped = METHODS[TRAINERS.get(trainer.last, "sft")].grouped
    if length is None or length.value is None:
        length = Argument(UNSLOTH_LENGTH, place)
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
        entries.add("use_peft", Argument(True, call.place))
        _block(entries, "lora", call)
        return
    if given is None or given.value is None:
        if model.continued is not None:
            entries.add("use_peft", Argument(True, model.continued.place))
        return
    value = program.revealed(given.value)
    if isinstance(given.value, Unknown):
        entries.problem("peft_config", given.value, "whether adapters are trained", given.place)
    if isinstance(value, Object) and value.last in ("LoraConfig", "LoRAConfig"):
        entries.add("use_peft", Argument(True, value.place))
        _block(entries, "lora", value)
    elif not isinstance(given.value, Unknown):
        entries.problem("peft_config", None, "these adapters are not read", given.place)


def _checkpointing(entries: Entries, model: Model) -> None:
    """Recomputation that is turned on outside the trainer's configuration."""
    place = model.checkpointing
    if model.prepared is not None:
        on = model.prepared.argument("use_gradient_checkpointing", 1)
        place = model.prepared.place if on is None or on.value is not False else place
    call = model.unsloth_adapter
    if call is not None:
        own = call.keywords.get("use_gradient_checkpointing")
        place = call.place if own is None or own.value not in (False, None) else place
    stated = entries.values.get("gradient_checkpointing")
    if place is not None and (stated is None or stated.off):
        entries.values["gradient_checkpointing"] = Entry("gradient_checkpointing", True, place.file, place.line)


def tokenizer_of(trainer: Object) -> tuple[Object | None, Object | None]:
    """The call that loads the tokenizer, and that of Unsloth's `get_chat_template`."""
    given = program.argument(trainer, "processing_class") or program.argument(trainer, "tokenizer")
    value = None if given is None else program.revealed(given.value)
    template: Object | None = None
    for _ in range(program.MOST):
        if not isinstance(value, Object):
            return None, template
        if value.last == "get_chat_template":
            template = value
            value = value.positional[0].value if value.positional else value.keywords["tokenizer"].value
        elif value.path.endswith("[]") or value.receiver is not None:
            if (
                value.path.endswith("[]")
                and isinstance(value.receiver, Object)
                and value.receiver.last == "setup_chat_format"
            ):
                value = value.receiver.positional[1].value if len(value.receiver.positional) > 1 else None
                continue
            if value.path.endswith("[]"):
                return value, template
            value = value.receiver
        else:
            return value, template
    return None, template


def _tokenizer(entries: Entries, model: Model, trainer: Object) -> None:
    found, _ = tokenizer_of(trainer)
    if found is None:
        return
    name = found.argument("pretrained_model_name_or_path", 0) if found.last == "from_pretrained" else None
    if (
        name is not None
        and model.name is not None
        and name.value != model.name.value
        and found.path.endswith(".from_pretrained")
    ):
        adapter = model.continued.value if model.continued is not None else None
        if name.value != adapter:
            entries.add("tokenizer_name_or_path", name)
    for key, given in found.keywords.items():
        if (
            key not in ("pretrained_model_name_or_path", "model_name")
            and not found.path.endswith("[]")
            and not key.startswith("**")
        ):
            entries.others.append((f"tokenizer.{key}", given))
    for key, value in found.attributes.items():
        place = found.places.get(key)
        if place is None or key.startswith(("<", "[")):
            continue
        if key == "chat_template":
            entries.add("chat_template", Argument(value, place))
        elif (
            key in ("pad_token", "pad_token_id", "padding_side", "truncation_side", "model_max_length")
            or not isinstance(value, Object)
            or key in ("eos_token", "bos_token", "eos_token_id")
        ):
            entries.others.append((f"tokenizer.{key}", Argument(value, place)))


def write(draft: Draft, entries: Entries, model: Model, trainer: Object, machine: Machine) -> None:
    """Write what no argument of TRL has: defaults of adapters, tokens, templates, a reference, an adapter's folder."""
    adapter = entries.values.get("use_peft")
    if adapter is not None:
        unsloth = model.unsloth_adapter is not None
        for path, value in (UNSLOTH_DEFAULTS if unsloth else LORA_DEFAULTS).items():
            draft.put(path, value, None, f"not set: the default of {'Unsloth' if unsloth else 'PEFT'}")
        if unsloth and "lora_target_modules" not in entries.values:
            draft.put("lora.targets", UNSLOTH_TARGETS, None, "not set: Unsloth's own")
    if model.continued is not None:
        _continued(draft, model)
    for step in model.steps:
        draft.error(
            Entry(f"model.{step.last}", None, step.place.file, step.place.line),
            "the model goes through a function that is not read",
            "leave it out if it changes no weights",
        )
    for place in machine.parameters[:3]:
        draft.error(
            Entry("parameters", None, place.file, place.line),
            "a loop over the model's parameters or modules changes them",
            "`freeze` trains some of the weights; casts follow `precision`",
        )
    _config(draft, model)
    _unread_calls(draft, model, trainer, machine)
    _formatted(draft, model)
    _padding(draft, trainer)
    _template(draft, trainer)
    _tokens(draft, trainer)
    _reference(draft, model, trainer)
    name = model.name
    if name is not None and isinstance(name.value, str) and name.value.endswith(QUANTIZED):
        draft.differs(
            "model_name",
            "the script loads weights that are quantized already; the spec quantizes the "
            "original ones, and Unsloth's own 4 bits leave some layers in 16",
            entry("model_name", name),
        )


def _continued(draft: Draft, model: Model) -> None:
    from xpc.compiler.importing.trl.model import continued

    given = model.continued
    assert given is not None
    merged = any(one.last == "merge_and_unload" for one in model.steps)
    if merged:
        return
    draft.put("lora", True, entry("adapter", given))
    continued(draft, entry("adapter", given))


def _padding(draft: Draft, trainer: Object) -> None:
    """Report a script that never learns the end token: it pads with this token, and transformers' collator leaves all
    padding tokens out of the loss. TRL has a collator of its own since 0.16.
    """
    given = program.argument(trainer, "data_collator")
    called = given.value if given is not None and isinstance(given.value, Object) else None
    collator = called.last if called is not None else ""
    found, _ = tokenizer_of(trainer)
    if found is None and called is not None:
        inside = called.argument("tokenizer", 0)
        found = inside.value if inside is not None and isinstance(inside.value, Object) else None
    value = found.attributes.get("pad_token", found.attributes.get("pad_token_id")) if found is not None else None
    if draft.method != "sft" or not isinstance(value, Object | Name) or not value.last.startswith("eos_token"):
        return
    order = versions.numbers()
    old = not collator and trainer.last == "SFTTrainer" and order.index(draft.trl) < order.index("0.16")
    if collator in ("DataCollatorForLanguageModeling", "DataCollatorForCompletionOnlyLM") or old:
        place = trainer.place if found is None else found.places.get("pad_token", trainer.place)
        draft.differs(
            "pad_token",
            "the script pads with the end token, and its collator leaves all of these tokens out of the loss; the spec "
            "learns the end of each row",
            Entry("tokenizer.pad_token", value.last, place.file, place.line),
        )


def _formatted(draft: Draft, model: Model) -> None:
    """TRL's `setup_chat_format`: ChatML with its tokens."""
    if model.formatted is None:
        return
    place = model.formatted.place
    found = Entry("setup_chat_format", "chatml", place.file, place.line)
    draft.put("model.chat_template", "chatml", found)
    draft.put("model.eos", "<|im_end|>", found)
    draft.put("model.tokens", ("<|im_start|>", "<|im_end|>"), found)


def _template(draft: Draft, trainer: Object) -> None:
    _, call = tokenizer_of(trainer)
    if call is None:
        return
    given = call.argument("chat_template", 1) or Argument("chatml", call.place)
    found = entry("get_chat_template", given)
    name = TEMPLATES.get(str(found.value))
    if name is None:
        draft.error(
            found, "the language has no such chat template", 'write `model { chat_template = file("x.jinja") }`'
        )
        return
    draft.put("model.chat_template", name, found)
    draft.differs("get_chat_template", f"Unsloth's own text of the template; the spec has xpc's `{name}`", found)


def _tokens(draft: Draft, trainer: Object) -> None:
    """Tokens that the script adds to the vocabulary."""
    found, _ = tokenizer_of(trainer)
    for call in found.calls if found is not None else []:
        if call.last not in ("add_special_tokens", "add_tokens"):
            continue
        given = call.positional[0] if call.positional else None
        value = given.value if given is not None else None
        names: list[object] = list(value) if isinstance(value, list | tuple) else [value]
        if isinstance(value, dict):
            names = []
            for key, one in value.items():
                names += list(one) if isinstance(one, list | tuple) else [one] if key != "pad_token" else []
            if "pad_token" in value:
                draft.differs(
                    "add_special_tokens",
                    "the script adds a padding token, a row of the embeddings that is "
                    "never learned; the spec adds none",
                    Entry("pad_token", str(value["pad_token"]), call.place.file, call.place.line),
                )
        place = Entry(call.last, None, call.place.file, call.place.line)
        if all(isinstance(one, str) for one in names) and names:
            draft.put("model.tokens", tuple(names), Entry(call.last, list(map(str, names)), place.file, place.line))
        elif names:
            draft.error(place, "the tokens that are added are not known")


def _reference(draft: Draft, model: Model, trainer: Object) -> None:
    given = program.argument(trainer, "ref_model")
    if given is None or given.value is None:
        return
    found = Entry("ref_model", None, given.place.file, given.place.line)
    other = program.model_of(given)
    same = other.name is not None and model.name is not None and other.name.value == model.name.value
    if isinstance(given.value, Unknown):
        draft.error(found, f"whether the reference is the model itself is not known: {given.value.why}")
    elif same or (isinstance(given.value, Object) and given.value.last == "create_reference_model"):
        draft.note(found, "the reference is the model before training")
    else:
        draft.error(found, "the reference is the model before training, and the script has another one")


def compute_dtype(draft: Draft, entries: Entries, stated: Entry | None) -> None:
    """Compare the type in which quantized layers compute with the precision of the spec."""
    four, kind = entries.values.get("load_in_4bit"), entries.values.get("bnb_4bit_quant_type")
    if four is None or four.value is not True or (stated is None and kind is None):
        return
    precision = draft.settings.get("precision")
    wanted = "fp32" if stated is None else DTYPES.get(str(stated.value).removeprefix("torch."), "")
    if precision is not None and precision.text == wanted:
        draft.note(stated, "a bundle does the same")
        return
    draft.note(stated, "quantized layers compute in the precision of the spec")
    draft.differs(
        "bnb_4bit_compute_dtype",
        f"the script computes quantized layers in {wanted or 'another type'}"
        f"{', the default' if stated is None else ''}; the spec computes them in its precision",
        stated,
    )


HARMLESS = ("use_cache", "pretraining_tp", "torch_dtype", "pad_token_id", "bos_token_id", "dtype", "name_or_path")
"""Attributes of a model's configuration that change nothing in training."""
LIBRARIES = (
    "trl",
    "transformers",
    "peft",
    "datasets",
    "torch",
    "unsloth",
    "accelerate",
    "wandb",
    "os",
    "json",
    "logging",
    "sys",
    "print",
    "len",
    "str",
    "evaluate",
    "gc",
    "time",
    "torchinfo",
    "getattr",
    "type",
    "isinstance",
    "huggingface_hub",
    "mlflow",
    "id",
    "repr",
    "display",
    "hasattr",
    "super",
    "copy",
    "next",
    "sum",
    "list",
)


def _config(draft: Draft, model: Model) -> None:
    """Attributes of the model's configuration that the script sets."""
    for owner in model.seen:
        config = owner.attributes.get("config")
        for key, value in config.attributes.items() if isinstance(config, Object) else ():
            place = config.places.get(key) if isinstance(config, Object) else None
            if place is None:
                continue
            found = entry(f"model.config.{key}", Argument(value, place))
            if key in HARMLESS:
                draft.note(found, "it changes nothing in training")
            elif key == "eos_token_id" or isinstance(value, Object):
                draft.note(found, "the tokenizer's token")
            else:
                draft.error(
                    found, "it overrides the model's config.json", 'write `model { config = file("config.json") }`'
                )


def _unread_calls(draft: Draft, model: Model, trainer: Object, machine: Machine) -> None:
    """Warn of functions of other modules that are given the model, the trainer or its configuration."""
    own = {(one.path, one.place) for one in [*model.seen, trainer]}
    config = program.argument(trainer, "args")
    if config is not None and isinstance(config.value, Object):
        own.add((config.value.path, config.value.place))
    for call in machine.calls:
        given = [*(one.value for one in call.positional), *(one.value for one in call.keywords.values())]
        known = call.path.partition(".")[0] in LIBRARIES or call.path.endswith("()") or call in model.seen
        if not known and any(isinstance(one, Object) and (one.path, one.place) in own for one in given):
            draft.warn(
                Entry(call.last, None, call.place.file, call.place.line),
                "it is given the model or the trainer, and its module is not read: it may change what is learned",
            )
