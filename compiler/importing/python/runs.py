"""Find the training runs of a script. A run is a call of a trainer's `train`, with the settings that the trainer has at
this call.
"""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.entries import entry
from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.script_calls import TRAINED
from xpc.compiler.importing.python.interpreter.values import Argument, Name, Object, Scalar, Unknown
from xpc.compiler.language.methods import METHODS

MOST = 1_000
"""The largest number of a trainer's settings that are compared between runs."""
LISTED = 8
"""The largest number of runs that a message lists."""
ARGUMENTS = (
    "model", "ref_model", "args", "train_dataset", "eval_dataset", "data_collator", "tokenizer", "processing_class",
    "peft_config", "callbacks", "reward_funcs", "tools", "formatting_func", "teacher_model", "optimizers",
)  # fmt: skip
"""Attributes of a trainer that are imported like the trainer's argument of the same name."""
HARMLESS = (
    "can_return_loss", "label_names", "is_model_parallel", "compute_metrics", "preprocess_logits_for_metrics",
    "use_cache", "pad_token_id", "bos_token_id", "_signature_columns", "max_new_tokens", "max_length",
)  # fmt: skip
"""Attributes of a trainer or its generation settings that do not change what is learned. An argument of the trainer
overrides `max_length` and `max_new_tokens`.
"""


def trainers_of(machine: Machine) -> list[Object]:
    """The trainers on which the script calls `train`. If there is no such call, all trainers that it creates. A trainer
    in a function that the script calls twice with different settings is included twice.
    """
    made: list[Object] = []
    # a function may be interpreted twice, which records its calls twice, so keep one call for each location
    for one in machine.calls:
        if functions.is_trainer(one.path) and not any(one.location == other.location for other in made):
            made.append(one)
    trained: list[Object] = []
    seen: list[list[object]] = []
    for one in machine.trained:
        base = one
        while base.last == "train_on_responses_only" and (given := base.argument("trainer", 0)) is not None:
            inner = given.value
            if not isinstance(inner, Object):
                break
            base = inner
        settings = _settings(base)
        if not any(base is other or (base.location == other.location and settings == before)
                   for other, before in zip(trained, seen)):  # fmt: skip
            trained.append(base)
            seen.append(settings)
    return trained or made


def listed(found: list[Object]) -> str:
    """The runs with their numbers and lines, for messages: "1. SFTTrainer on line 20"."""
    lines = [one.location for one in found]
    return ", ".join(
        f"{n}. {one.last} on line {one.location.line}{_folder(one) if lines.count(one.location) > 1 else ''}"
        for n, one in enumerate(found[:LISTED], 1)
    )


def repeated(draft: Draft, machine: Machine, trainer: Object) -> None:
    """Report a trainer whose `train` the script calls several times, perhaps in a loop. Each call continues the
    training of the same model with a new optimizer and a new schedule.
    """
    times = [one.attributes.get(TRAINED) for one in machine.trained if one.location == trainer.location]
    most = max((one for one in times if isinstance(one, int)), default=1)
    calls = [
        one.location
        for one in machine.calls
        if one.last == "train" and isinstance(one.receiver, Object) and one.receiver.location == trainer.location
    ]
    looped = next((one for one in calls if one in machine.repeated), None)
    if most > 1 or looped is not None:
        how = f"{most} times" if looped is None else "in a loop"
        draft.error((looped or calls[-1]).entry("train"), f"the script calls `train` {how}, each time with a new "
                    "optimizer and schedule; a spec trains once",
                    "import each training as a spec that begins with the model of the one before")  # fmt: skip


def changed_parts(draft: Draft, trainer: Object) -> None:
    """Report attributes of the trainer, or of its generation settings, that the script sets on the created trainer. An
    attribute with the name of an argument is imported like the argument.
    """
    parts = trainer.attributes.get("generation_config")
    generation = parts if isinstance(parts, Object) else None
    for prefix, owner in (("trainer", trainer), ("trainer.generation_config", generation)):
        if owner is None:
            continue
        for name, value in owner.attributes.items():
            location = owner.locations.get(name)
            argument = owner is trainer and (name in ARGUMENTS or name in trainer.keywords)
            if location is None or argument or name in HARMLESS:
                continue
            found = entry(f"{prefix}.{name}", Argument(value, location))
            if owner is generation and not METHODS[draft.method].grouped:
                draft.note(found, "nothing is generated in training")
            else:
                draft.error(found, "the script sets it on the created trainer, and a spec has no setting for it",
                            "leave it out if it does not change the training")  # fmt: skip


def _folder(trainer: Object) -> str:
    """The output folder of a run, in parentheses; "" if it is not known. It distinguishes runs that the same line
    starts, as in a loop.
    """
    config = trainer.keywords.get("args")
    value = config.value if config is not None else None
    given = value.argument("output_dir", 0) if isinstance(value, Object) else None
    return f" ({given.value})" if given is not None and isinstance(given.value, str) else ""


def _settings(trainer: Object) -> list[object]:
    """The known values that determine a run: the arguments of the trainer, of its configuration, and of the calls that
    create its model and rows.
    """
    out: list[object] = []
    left: list[object] = [trainer]
    seen: set[int] = set()
    for _ in range(MOST):
        if not left:
            break
        value = left.pop()
        if id(value) in seen and not isinstance(value, Scalar):
            continue
        seen.add(id(value))
        if isinstance(value, Object):
            out.append(value.path)
            left += [one.value for one in value.positional]
            left += [one.value for _, one in sorted(value.keywords.items())]
            if functions.is_settings(value):
                left += [one for name, one in sorted(value.attributes.items())
                         if not isinstance(one, Object) and name != TRAINED]  # fmt: skip
            left.append(value.receiver)
        elif isinstance(value, Argument):
            left.append(value.value)
        elif isinstance(value, dict):
            left += list(value.values())[:MOST]
        elif isinstance(value, list | tuple):
            left += value[:MOST]
        elif isinstance(value, Name):
            out.append(value.path)
        elif isinstance(value, Unknown):
            left.append(value.hidden)
        elif isinstance(value, Scalar) and value is not None:
            out.append(value)
    return out
