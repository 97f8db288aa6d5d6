"""Find what a script trains: the trainer among its calls, and the model that the trainer gets."""

from __future__ import annotations

from xpc.compiler.importing.python import runs
from xpc.compiler.importing.python.interpreter.functions import ancestors
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Argument, Location, Name, Object, Unknown
from xpc.compiler.importing.text.entries import NO_TRAINER, OTHER_TRAINER, Unreadable
from xpc.grammar.record import field, mutable

POSITIONS = {
    "SFTTrainer": ("model", "args", "data_collator", "train_dataset", "eval_dataset"),
    "DPOTrainer": ("model", "ref_model", "args"),
    "GRPOTrainer": ("model", "reward_funcs", "args", "train_dataset", "eval_dataset"),
    "RLOOTrainer": ("model", "reward_funcs", "args", "train_dataset", "eval_dataset"),
    "KTOTrainer": ("model", "ref_model", "args", "train_dataset", "eval_dataset"),
    "RewardTrainer": ("model", "args", "data_collator", "train_dataset", "eval_dataset"),
    "GKDTrainer": ("model", "teacher_model", "args"),
    "Trainer": ("model", "args", "data_collator", "train_dataset", "eval_dataset"),
    "Seq2SeqTrainer": ("model", "args", "data_collator", "train_dataset", "eval_dataset"),
}
"""Maps each trainer class to the names of its positional arguments, in their order."""
OTHERS = (
    ("PPOTrainer", "PPO, which xpc does not have"),
    ("OnlineDPOTrainer", "online DPO, which xpc does not have"),
    ("XPOTrainer", "XPO, which xpc does not have"),
    ("NashMDTrainer", "Nash-MD, which xpc does not have"),
    ("BCOTrainer", "BCO, which xpc does not have"),
    ("PRMTrainer", "a process reward model, which xpc does not have"),
    ("SentenceTransformerTrainer", "embeddings"),
    ("MegatronTrainer", "Megatron"),
)
HEADS = (
    "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM", "ForSeq2SeqLM",
    "ForImageTextToText", "ForVision2Seq", "ForSpeechSeq2Seq", "ForConditionalGeneration", "ForImageClassification",
    "ForMultipleChoice",
)  # fmt: skip
MOST = 40
FROM_COMMAND_LINE = (
    "its settings come from the command line or a YAML file: import the command that starts it, such as "
    "`xpc import --command '...'`, or the YAML file"
)


@mutable
class Model:
    """The model of a script: the call that loads it, and the changes that the script makes before training."""

    loaded: Object | None = None
    name: Argument | None = None
    adapter: Argument | None = None
    unsloth_adapter: Object | None = None
    continued: Argument | None = None
    continuing: Object | None = None
    """The call that loads a saved adapter, whose training the run continues."""
    prepared: Object | None = None
    formatted: Object | None = None
    dtype: Argument | None = None
    checkpointing: Location | None = None
    unknown: list[Unknown] = field(factory=list)
    steps: list[Object] = field(factory=list)
    seen: list[Object] = field(factory=list)
    """The model's states before the trainer is created: the result of the call that loads it, and then of each call
    that wraps or changes it.
    """


def trainer_of(machine: Machine, found: list[Object], pick: int | None = None, partial: bool = False) -> Object:
    """Choose the trainer to import. `pick` is its number; without it, the only trainer is chosen or, with `partial`,
    the first one.

    Raises Unreadable if there is no trainer, if there are several and none is chosen, or if xpc does not have this kind
    of training.
    """
    if len(found) > 1:
        if pick is not None and 0 < pick <= len(found):
            return found[pick - 1]
        if not partial:
            raise Unreadable(f"it trains {len(found)} times ({runs.listed(found)}); `--pick N` chooses one")
    if found:
        config = argument(found[0], "args")
        value = revealed(config.value) if config is not None else None
        if isinstance(value, Object) and "<command line>" in value.attributes:
            raise Unreadable(FROM_COMMAND_LINE, value.location.line)
        return found[0]
    names = {one.last: one for one in machine.calls}
    for name, what in OTHERS:
        if name in names:
            raise Unreadable(f"it trains {what} ({name})", names[name].location.line, OTHER_TRAINER)
    parsers = [one for one in machine.calls if one.last in ("parse_args_into_dataclasses", "parse_args_and_config")]
    if parsers and machine.command is None:
        raise Unreadable(FROM_COMMAND_LINE, parsers[0].location.line)
    loop = next((one for one in machine.calls if one.last in ("backward", "DataLoader")), None)
    own = "it has its own training loop" if loop is not None else "it constructs no trainer of TRL or transformers"
    raise Unreadable(
        f"{own}: only scripts with a trainer of TRL or transformers (such as SFTTrainer) can be imported",
        0 if loop is None else loop.location.line,
        NO_TRAINER,
    )


def responses_only(machine: Machine, trainer: Object) -> Object | None:
    """The call of Unsloth's `train_on_responses_only` to which this trainer is passed; None if there is none."""
    for one in machine.calls:
        inner = given.value if (given := one.argument("trainer", 0)) is not None else None
        if one.last == "train_on_responses_only" and isinstance(inner, Object) and inner.location == trainer.location:
            return one
    return None


def argument(trainer: Object, name: str) -> Argument | None:
    """The trainer's argument `name`, or None if it is missing. The script may pass it by name or position, or assign it
    later.
    """
    if name in trainer.attributes and (name in trainer.locations or not isinstance(trainer.attributes[name], Object)):
        return Argument(trainer.attributes[name], trainer.locations.get(name, trainer.location))
    order = POSITIONS.get(trainer.last, POSITIONS["SFTTrainer"])
    return trainer.argument(name, order.index(name) if name in order else None)


def revealed(value: object) -> object:
    """The known value from which an unknown value was computed, such as the configuration before a change in only one
    branch of a condition. A known value is returned unchanged.
    """
    found = (one for one in ancestors(value) if not isinstance(one, Unknown) or one.hidden is None)
    return next(found, value)


def model_of(given: Argument | None) -> Model:
    """Trace the model back, from the trainer's argument to the call that loads it."""
    out = Model()
    if given is None:
        return out
    value, location = given.value, given.location
    for _ in range(MOST):
        if isinstance(value, Unknown):
            out.unknown.append(value)
            value = value.hidden
            continue
        if not isinstance(value, Object):
            out.name = Argument(value, location)
            return out
        location = value.location
        out.seen.append(value)
        below = _step(out, value)
        if below is None:
            return out
        value = below
    return out


def _step(out: Model, value: Object) -> object:
    """Record one of the calls between loading the model and creating the trainer. Returns the model that is passed to
    this call, or None for the call that loads the model.
    """
    first = value.positional[0].value if value.positional else None
    if value.last in ("from_pretrained", "from_config", "load_model"):
        return (first or _keyword(value, "model")) if _continues(out, value) else None
    _checkpointing(out, value)
    if value.last == "get_peft_model" and ("unsloth" in value.path or "Fast" in value.path):
        out.unsloth_adapter = value
    elif value.last == "get_peft_model":
        out.adapter = value.argument("peft_config", 1)
    elif value.last in ("prepare_model_for_kbit_training", "prepare_model_for_int8_training"):
        out.prepared = value
    elif value.last == "setup_chat_format":
        out.formatted = value
    else:
        return _other_step(out, value, first)
    return first or _keyword(value, "model")


def _continues(out: Model, value: Object) -> bool:
    """Record a call that loads the model or an adapter. Returns True if the call loads an adapter onto a model that is
    passed to it.
    """
    adapter = "AutoPeftModel" in value.path
    if adapter or ".PeftModel." in value.path or value.path.startswith("peft."):
        out.continuing = value
        out.continued = value.argument("model_id", 1) or value.argument("pretrained_model_name_or_path", 0)
        if adapter:
            out.loaded, out.name = value, None
        return not adapter
    out.loaded = value
    out.name = value.argument("pretrained_model_name_or_path", 0) or value.argument("model_name", 0)
    _checkpointing(out, value)
    return False


def _checkpointing(out: Model, value: Object) -> None:
    for call in value.calls:
        if call.last == "gradient_checkpointing_enable":
            out.checkpointing = call.location


DTYPES = {"half": "float16", "bfloat16": "bfloat16", "float": "float32"}
"""Maps a method of a model to the dtype to which it converts the weights: `half` to `float16`."""


def _other_step(out: Model, value: Object, first: object) -> object:
    """Record a call that gets and returns the model, such as `prepare(model)`, if it changes the dtype or is unknown to
    xpc. Returns the model that the call gets.
    """
    if value.path.endswith("[]"):
        return value.receiver
    if value.last in DTYPES:
        out.dtype = Argument(DTYPES[value.last], value.location)
    if value.last == "to":
        given = (one.value for one in [*value.positional, *value.keywords.values()])
        kind = next((one for one in given if isinstance(one, Name) and one.path.startswith("torch.")), None)
        out.dtype = out.dtype if kind is None else Argument(kind, value.location)
    if value.last in (*DTYPES, "to", "cuda", "train", "eval", "cpu", "requires_grad_"):
        return value.receiver
    if value.last in ("prepare", "prepare_model", "compile", "patch_model", "deepcopy", "for_training"):
        return first
    out.steps.append(value)
    return first if isinstance(first, Object | Unknown) else value.receiver


def _keyword(value: Object, name: str) -> object:
    given = value.keywords.get(name)
    return None if given is None else given.value
