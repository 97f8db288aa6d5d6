"""Import how a script loads and changes its tokenizer: padding, chat templates, and added tokens."""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python import program
from xpc.compiler.importing.python.entries import Entries, entry
from xpc.compiler.importing.python.interpreter.values import Argument, Name, Object
from xpc.compiler.importing.python.program import Model
from xpc.compiler.importing.trl import versions

TEMPLATES = {
    one.replace(".", ""): one
    for one in (
        "chatml",
        "llama3",
        "llama3.1",
        "gemma",
        "gemma3",
        "qwen2.5",
        "qwen3",
        "mistral",
        "phi3",
        "zephyr",
        "vicuna",
    )
}
"""Maps Unsloth's name of a chat template, without dashes and dots, to xpc's: both `qwen-2.5` and `qwen25` of Unsloth
are the key `qwen25`.
"""


def _template_of(name: str) -> str | None:
    """xpc's name of one of Unsloth's chat templates, such as `qwen2.5` for `qwen-2.5`; None if xpc does not have the
    template.
    """
    return TEMPLATES.get(name.replace("-", "").replace(".", ""))


def tokenizer_of(trainer: Object) -> tuple[Object | None, Object | None]:
    """Return the call that loads the tokenizer, and the call of Unsloth's `get_chat_template`; None for a call that is
    missing in the script.
    """
    given = program.argument(trainer, "processing_class") or program.argument(trainer, "tokenizer")
    value = None if given is None else program.revealed(given.value)
    template: Object | None = None
    for _ in range(program.MOST):
        if not isinstance(value, Object):
            return None, template
        if value.last == "get_chat_template":
            template, inner = value, value.argument("tokenizer", 0)
            value = None if inner is None else inner.value
        elif not value.path.endswith("[]"):
            if value.receiver is None:
                return value, template
            value = value.receiver
        elif isinstance(value.receiver, Object) and value.receiver.last == "setup_chat_format":
            inner = value.receiver.argument("tokenizer", 1)
            value = None if inner is None else inner.value
        else:
            return value, template
    return None, template


def gather(entries: Entries, model: Model, trainer: Object) -> None:
    """Add the tokenizer's name, chat template and other arguments to the entries."""
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
        location = found.locations.get(key)
        if location is None or key.startswith(("<", "[")):
            continue
        if key == "chat_template":
            if _of_unsloth(value) is None:
                entries.add("chat_template", Argument(value, location))
        elif key == "eos_token" and isinstance(value, str):
            entries.add("eos_token", Argument(value, location))
        elif (
            key in ("pad_token", "pad_token_id", "padding_side", "truncation_side", "model_max_length")
            or not isinstance(value, Object)
            or key in ("eos_token", "bos_token", "eos_token_id")
        ):
            entries.others.append((f"tokenizer.{key}", Argument(value, location)))


def write(draft: Draft, model: Model, trainer: Object) -> None:
    """Set the chat template and the added tokens. Also report padding that prevents the model from learning the eos
    token.
    """
    _formatted(draft, model)
    _padding(draft, trainer)
    _template(draft, trainer)
    _tokens(draft, trainer)


def _formatted(draft: Draft, model: Model) -> None:
    """Set ChatML's template and tokens, which TRL's `setup_chat_format` sets."""
    if model.formatted is None:
        return
    location = model.formatted.location
    found = location.entry("setup_chat_format", "chatml")
    draft.put("model.chat_template", "chatml", found)
    draft.put("model.eos", "<|im_end|>", found)
    draft.put("model.tokens", ("<|im_start|>", "<|im_end|>"), found)


def _padding(draft: Draft, trainer: Object) -> None:
    """Report a script that never trains on the eos token, because it is also the padding token, and the collator masks
    all padding tokens. TRL's own collator does not since version 0.16.
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
    first = draft.fitting[0] if draft.fitting else draft.trl
    old = not collator and trainer.last == "SFTTrainer" and order.index(first) < order.index("0.16")
    if collator in ("DataCollatorForLanguageModeling", "DataCollatorForCompletionOnlyLM") or old:
        location = trainer.location if found is None else found.locations.get("pad_token", trainer.location)
        draft.differs(
            "pad_token",
            f"the script pads with the end token, and {'the collator of trl before 0.16' if old else 'its collator'} "
            "excludes every end token from the loss; the spec trains on the end token of each row",
            location.entry("tokenizer.pad_token", value.last),
        )


def _of_unsloth(template: object) -> str | None:
    """The name of the template that a constant of Unsloth contains: `chatml` for `chatml_template`. None for any other
    value.
    """
    constant = isinstance(template, Name) and template.path.startswith("unsloth.chat_templates.")
    return _template_of(template.last.removesuffix("_template")) if constant else None  # type: ignore[attr-defined]


def _template(draft: Draft, trainer: Object) -> None:
    loaded, call = tokenizer_of(trainer)
    own = loaded.attributes.get("chat_template") if loaded is not None else None
    if call is not None:
        given = call.argument("chat_template", 1) or Argument("chatml", call.location)
        name = _template_of(str(given.value))
    elif loaded is not None and (name := _of_unsloth(own)) is not None:
        given = Argument(name, loaded.locations["chat_template"])
    else:
        return
    found = entry("get_chat_template", given)
    if name is None:
        draft.error(found, "xpc has no such chat template", 'write `model { chat_template = file("x.jinja") }`')
        return
    draft.put("model.chat_template", name, found)
    draft.differs(
        "get_chat_template", f"Unsloth has its own version of this template; the spec has xpc's `{name}`", found
    )


def _tokens(draft: Draft, trainer: Object) -> None:
    """Set the tokens that the script adds to the vocabulary."""
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
                    "the script adds a padding token, and so a row to the embeddings that "
                    "is never trained; the spec adds none",
                    call.location.entry("pad_token", str(value["pad_token"])),
                )
        location = call.location.entry(call.last)
        if all(isinstance(one, str) for one in names) and names:
            draft.put("model.tokens", tuple(names), call.location.entry(call.last, " ".join(map(str, names))))
        elif names:
            draft.error(location, "the added tokens are not known")
