"""Import what a script does with a loaded model: adapters, the reference model, and changes of the weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python import program
from xpc.compiler.importing.python.entries import Entries, entry
from xpc.compiler.importing.python.interpreter.functions import ancestors, lineage
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.parameter_loops import PARAMETERS, is_in_place
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Class,
    Function,
    Instance,
    Location,
    Name,
    Object,
    Unknown,
)
from xpc.compiler.importing.python.models import HARMLESS, QUANTIZED, is_unsloth
from xpc.compiler.importing.python.program import DTYPES, Model
from xpc.grammar.record import evolve

LOOP = (
    "a loop over the model's parameters or modules changes them",
    "`freeze` trains only some of the weights, and `precision` decides the casts",
)
"""The reason and the help of the error for a loop that changes parameters or modules."""
LOADS = ("from_pretrained", "create_reference_model")
MOST = 3
"""The largest number of reports about replaced parts of a model."""
LORA_DEFAULTS = {"lora.rank": 8, "lora.alpha": 8.0, "lora.dropout": 0.0}
UNSLOTH_DEFAULTS = {"lora.rank": 16, "lora.alpha": 16.0, "lora.dropout": 0.0}
UNSLOTH_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LIBRARIES = (
    "trl", "transformers", "peft", "datasets", "torch", "unsloth", "accelerate", "wandb", "os", "json", "logging",
    "sys", "print", "len", "str", "evaluate", "gc", "time", "torchinfo", "getattr", "type", "isinstance",
    "huggingface_hub", "mlflow", "swanlab", "clearml", "id", "repr", "display", "hasattr", "super", "copy", "next",
    "sum", "list",
)  # fmt: skip


def _leads_to(values: Iterable[object], own: set[Location]) -> bool | None:
    """Whether a chain of values, latest first, begins at the trained model, whose calls are `own` (True), at another
    model (False), or at neither (None).
    """
    calls = (one for one in values if isinstance(one, Object))
    first = next((one for one in calls if one.location in own or one.last in LOADS), None)
    return None if first is None else first.location in own


def write(draft: Draft, entries: Entries, model: Model, trainer: Object, machine: Machine) -> None:
    """Write the adapter's default settings, a continued adapter and the reference model to the draft. Also report
    changes of the model that a spec cannot express.
    """
    adapter = entries.values.get("use_peft")
    # the defaults below are LoRA's, and do not hold for other kinds of adapters
    if adapter is not None and "adapter.kind" not in entries.values:
        unsloth = model.unsloth_adapter is not None
        for path, value in (UNSLOTH_DEFAULTS if unsloth else LORA_DEFAULTS).items():
            draft.put(path, value, None, f"not set: the default of {'Unsloth' if unsloth else 'PEFT'}")
        if unsloth and "lora_target_modules" not in entries.values:
            draft.put("lora.targets", UNSLOTH_TARGETS, None, "not set: Unsloth's default")
    if model.continued is not None:
        _continued(draft, model, trainer, machine.read)
    _steps(draft, model)
    own = {one.location for one in model.seen}
    changed = [
        location
        for location, loop in machine.parameters
        if (not own or _leads_to(ancestors(loop.receiver), own) is not False)
        and not _of_reference(loop.receiver, trainer, machine)
    ]
    for location in changed[:3]:
        draft.error(location.entry("parameters"), *LOOP)
    if not changed:
        _replaced(draft, own, model, machine)
        # this argument names a second adapter, which is the reference model
        referred = "ref_adapter_name" in entries.values
        calls = machine.calls[: _training_starts(trainer, machine)]
        _written(draft, own, model, [one for one in calls if one.last != "load_adapter" or not referred])
    _config(draft, model)
    _unread_calls(draft, model, trainer, machine)
    _reference(draft, model, trainer)
    name, four = model.name, entries.values.get("load_in_4bit")
    replaced = model.loaded is not None and is_unsloth(model.loaded) and (four is None or four.value is not True)
    # without `load_in_4bit`, Unsloth loads the original weights
    if name is not None and isinstance(name.value, str) and name.value.endswith(QUANTIZED) and not replaced:
        draft.differs(
            "model_name",
            "the script loads quantized weights; the spec quantizes all layers of the original "
            "weights, whereas Unsloth's own 4-bit weights keep some layers in 16 bits",
            entry("model_name", name),
        )


def _steps(draft: Draft, model: Model) -> None:
    """Report each call before training that gets the model and that the importer does not read."""
    for step in model.steps:
        found = step.location.entry(f"model.{step.last}")
        if step.last == "merge_and_unload" and model.continued is not None:
            why = "the script merges this adapter into the model before it trains; a spec cannot change a saved model"
            help = "merge the adapter first, and name the merged model: `--model NAME`"
            draft.error(evolve(entry(found.key, model.continued), line=found.line), why, help)
        else:
            draft.error(found, "the script passes the model to a function that xpc does not read",
                        "leave the call out if it changes no weights")  # fmt: skip


def _of_reference(value: object, trainer: Object, machine: Machine) -> bool:
    """Whether a value is a part of the reference model. A function may load both models on the same line, so values are
    compared with those in the trainer's call, not by location.
    """
    made = next((one for one in machine.calls if _is_at(one, trainer) and one.path == trainer.path), trainer)
    both = [program.argument(made, name) for name in ("ref_model", "model")]
    reference, model = ({id(one) for one in ancestors(each and each.value)} for each in both)
    return any(id(one) in reference - model for one in ancestors(value))


LIBRARY = re.compile(
    r"(?:transformers\.(?:models|modeling\w*|trainer|Trainer)|trl|peft|torch\.nn|torch\.optim)(?:\.|$)"
)
"""Matches modules and classes of libraries that determine what a model computes or learns, so that replacing an
attribute of them changes the training.
"""
QUIET = (
    "config", "generation_config", "state_dict", "save_pretrained", "push_to_hub", "tokenizer", "grad", "use_cache",
    "gradient_checkpointing", "training", "print_trainable_parameters",
)  # fmt: skip
"""Attributes of a model or its parts whose replacement does not change the training, or is imported by another
function.
"""
CODE = Function | Bound | Class | Instance | Name | Object
"""Types of values that can replace a part of a model; a number or a text, such as a flag, cannot."""


def _replaced(draft: Draft, own: set[Location], model: Model, machine: Machine) -> None:
    """Report each line that replaces a part of the model, such as its attention, or a library's class or function that
    the model uses, and each line that freezes a part.
    """
    lines: dict[Location, tuple[str, str]] = {}
    for one in machine.replaced:
        parts = set(one.owner.path.replace("()", "").split("."))
        if one.name in QUIET or parts & {"config", "generation_config"}:
            continue
        if isinstance(one.owner, Name):
            if LIBRARY.match(one.owner.path) and isinstance(one.value, CODE):
                lines[one.location] = f"{one.owner.path}.{one.name}", _way(one.value)
        elif one.owner.last not in PARAMETERS[:2] and _part_of(one.owner, own):
            inside = (one.owner.path, one.owner.location) not in {(each.path, each.location) for each in model.seen}
            if (inside and one.value is not True) or isinstance(one.value, CODE):
                lines[one.location] = f"model.{one.name}", _way(one.value)
    for call in machine.calls:
        given = call.positional[0].value if call.positional else True
        receiver = call.receiver
        inside = isinstance(receiver, Object) and receiver.location not in own and _part_of(receiver, own)
        if call.last == "requires_grad_" and given is False and inside:
            lines[call.location] = "model.requires_grad_", ""
    for location, (name, flash) in list(lines.items())[:MOST]:
        found = location.entry(name)
        if flash:
            why = f"the script computes the attention by `{flash}`; the run computes it by the library's own kernel"
            draft.warn(found, why)
        elif name.endswith(("requires_grad", "requires_grad_")):
            draft.error(found, "the script freezes a part of the model", "`freeze` trains only some of the weights")
        else:
            draft.error(found, "the script replaces a part of the model; a spec trains the library's unchanged model",
                        "leave this line out if the new part computes the same")  # fmt: skip


WRITES = ("load_state_dict", "load_adapter", "add_adapter", "init_weights", "apply", "freeze")
"""Methods of a model that change its weights or add weights to it."""
DTYPE = re.compile(r"torch\.b?float\d*|torch\.half|torch\.double")


def _training_starts(trainer: Object, machine: Machine) -> int:
    """The number of recorded calls before the training."""
    starts = (n for n, one in enumerate(machine.calls) if one.last == "train" and _is_at(one.receiver, trainer))
    return next(starts, len(machine.calls))


def _is_at(value: object, other: Object) -> bool:
    return isinstance(value, Object) and value.location == other.location


def _written(draft: Draft, own: set[Location], model: Model, calls: list[Object]) -> None:
    """Report calls by which the script changes or casts the weights of its model, or changes the model's config."""
    for call in calls:
        receiver, given = call.receiver, [one.value for one in call.positional]
        on_model = isinstance(receiver, Object) and _part_of(receiver, own)
        casts = call.last in DTYPES or (
            call.last == "to" and any(isinstance(one, Name) and DTYPE.fullmatch(one.path) for one in given)
        )
        configures = call.last == "update" and isinstance(receiver, Object) and receiver.last == "config"
        initializes = call.path.startswith("torch.nn.init.") and isinstance(given[0] if given else None, Object)
        if (initializes and any(isinstance(one, Object) and _part_of(one, own) for one in given)) or (
            on_model and (call.last in WRITES or (is_in_place(call.last) and call.last != "requires_grad_"))
        ):
            why = "the script changes weights of the model before it trains"
        elif on_model and casts and call.location not in own:
            why = "the script casts the weights of the model; `model { dtype }` decides their type"
        elif on_model and configures:
            why = "it overrides the model's config.json"
        else:
            continue
        draft.error(call.location.entry(f"model.{call.last}"), why,
                    "save the changed model, and name its folder: `--model NAME`")  # fmt: skip


def _way(value: object) -> str:
    """The name of a function that computes attention by another kernel with the same result; "" for any other
    function.
    """
    name = value.name if isinstance(value, Function) else getattr(value, "path", "")
    label = value.label if isinstance(value, Function) else ""
    return name if re.search("flash|xformers", f"{name} {label}".lower()) else ""


def _part_of(value: Object, own: set[Location]) -> bool:
    """Whether a value is the trained model or a part of it. The tokenizer that Unsloth loads with the model is not."""
    steps = lineage(value)
    tokenizer = any(one.path.endswith(".from_pretrained[]") and one.positional[0].value == 1 for one in steps)
    return not tokenizer and _leads_to(steps, own) is True


def _continued(draft: Draft, model: Model, trainer: Object, read: Callable[[str], bytes | None]) -> None:
    from xpc.compiler.importing.trl.model import continued

    given = model.continued
    assert given is not None
    if any(one.last == "merge_and_unload" for one in model.steps):
        return
    found = entry("adapter", given)
    given = program.argument(trainer, "peft_config")
    if model.adapter is not None or (given is not None and given.value is not None):
        why = ("the script loads an adapter and trains another: TRL before 0.23 merges the loaded one into the model, "
               "and later versions refuse this")  # fmt: skip
        draft.error(found, why, "merge the loaded adapter first, and name the merged model")
        return
    trainable = loaded.keywords.get("is_trainable") if (loaded := model.continuing) is not None else None
    if trainable is None or trainable.value is not True:
        reason = "without `is_trainable=True`, PEFT freezes the loaded adapter, and the script trains nothing else"
        draft.error(found, reason, "write `is_trainable=True`, or `lora { from = ... }` in the spec")
        return
    draft.put("lora", True, found)
    continued(draft, found)
    if isinstance(found.value, str) and read(f"{found.value}/adapter_config.json") is None:
        reason = "the adapter's folder does not exist here, but `xpc check` needs the rank and the modules in it"
        draft.warn(found, reason, "copy the folder next to the spec")


def _reference(draft: Draft, model: Model, trainer: Object) -> None:
    given = program.argument(trainer, "ref_model")
    if given is None or given.value is None:
        return
    found = given.location.entry("ref_model")
    other = program.model_of(given)
    same = other.name is not None and model.name is not None and other.name.value == model.name.value
    if isinstance(given.value, Unknown):
        draft.error(
            found, f"the import cannot tell whether the reference is the trained model itself: {given.value.why}"
        )
    elif same or (isinstance(given.value, Object) and given.value.last == "create_reference_model"):
        draft.note(found, "the reference is the model before training")
    else:
        draft.error(found, "the spec's reference is the model before training; the script has another reference")


def _config(draft: Draft, model: Model) -> None:
    """Import the attributes that the script sets on `model.config`. An attribute that does not change the training has
    no effect; any other attribute is an error.
    """
    for owner in model.seen:
        config = owner.attributes.get("config")
        for key, value in config.attributes.items() if isinstance(config, Object) else ():
            location = config.locations.get(key) if isinstance(config, Object) else None
            if location is None:
                continue
            found = entry(f"model.config.{key}", Argument(value, location))
            if key in HARMLESS:
                draft.note(found, "it does not change the training")
            elif key == "eos_token_id" or isinstance(value, Object):
                draft.note(found, "the tokenizer's token")
            else:
                draft.error(
                    found, "it overrides the model's config.json", 'write `model { config = file("config.json") }`'
                )


def _unread_calls(draft: Draft, model: Model, trainer: Object, machine: Machine) -> None:
    """Warn about calls of functions in modules that the importer does not read, if the model, the trainer or its
    configuration is an argument: they may change what is learned.
    """
    own = {(one.path, one.location) for one in [*model.seen, trainer]}
    config = program.argument(trainer, "args")
    if config is not None and isinstance(config.value, Object):
        own.add((config.value.path, config.value.location))
    for call in machine.calls:
        given = [*(one.value for one in call.positional), *(one.value for one in call.keywords.values())]
        known = call.path.partition(".")[0] in LIBRARIES or call.path.endswith("()") or call in model.seen
        if not known and any(isinstance(one, Object) and (one.path, one.location) in own for one in given):
            draft.warn(
                call.location.entry(call.last),
                "this function gets the model or the trainer, and the import does not read its module: the function "
                "may change what is learned",
            )
