"""Write the draft of a script in Python: the trainer's arguments go through the key tables of TRL's YAML."""

from __future__ import annotations

from collections.abc import Iterable

from xpc.compiler import registry, stacks
from xpc.compiler.importing import keys
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import DEFAULT_GPU, Machines, Overrides, load
from xpc.compiler.importing.python import corpus, model_changes, models, program, rewards, tokenizers, trackers
from xpc.compiler.importing.python.entries import Entries, entry
from xpc.compiler.importing.python.interpreter import functions, script
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.source import parts
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Class,
    Function,
    Instance,
    Name,
    Object,
    Place,
    Unknown,
)
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.language.schema import TABLE
from xpc.grammar.record import evolve

KEYS = keys.load("python/keys.toml")
DATA = (
    "train_dataset",
    "eval_dataset",
    "processing_class",
    "tokenizer",
    "model",
    "ref_model",
    "args",
    "peft_config",
    "data_collator",
    "callbacks",
    "reward_funcs",
    "formatting_func",
    "teacher_model",
    "reward_processing_classes",
    "model_init_kwargs",
    "dataset_text_field",
    "max_seq_length",
)
"""Arguments of trainers that have readers of their own."""
PLAIN = ("Trainer", "Seq2SeqTrainer")
TRANSFORMERS = ("TrainingArguments", "Seq2SeqTrainingArguments")
LIFE = (
    "__init__",
    "log",
    "save_model",
    "evaluate",
    "_save",
    "prediction_step",
    "__repr__",
    "push_to_hub",
    "_save_checkpoint",
    "create_model_card",
    "store_metrics",
    "log_metrics",
    "save_metrics",
    "__post_init__",
)
"""Methods of a trainer that change reports and files, not what is learned."""
UNREAD = (
    "run_name",
    "logging_dir",
    "output_dir",
    "hub_model_id",
    "hub_token",
    "report_to",
    "dataset_num_proc",
    "local_rank",
    "dataloader_num_workers",
    "project",
    "trackio_space_id",
)
"""Arguments that change nothing that is learned: an unknown value is a warning."""


def python(text: str, file: str, overrides: Overrides) -> Draft:
    """Convert a script or a notebook to a draft. Raises Unreadable if it trains nothing that can be imported."""
    try:
        return _draft(text, file, overrides)
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error


def _draft(text: str, file: str, overrides: Overrides) -> Draft:
    found, broken = parts(text, file)
    gpu = registry.find_gpu((overrides.hardware or DEFAULT_GPU).rpartition(" ")[2])
    machine = script.followed(found, overrides.read, gpu is None or gpu.bf16_tflops is not None, overrides.sets)
    trainer = program.trainer_of(machine, overrides.pick)
    entries = Entries()
    _arguments(entries, trainer)
    own = set(entries.values)
    trackers.gather(entries, machine)
    model = program.model_of(program.argument(trainer, "model"))
    models.gather(entries, model, trainer)
    tokenizers.gather(entries, model, trainer)
    method = overrides.method or functions.TRAINERS[trainer.last]
    draft, source = trlyaml.start(
        evolve(overrides, method=method), entries.values, file, _dating(entries, own, model, trainer)
    )
    draft.transformers = entries.config is not None and entries.config.last in TRANSFORMERS
    for cell in broken:
        draft.warn(None, f"{cell} is not Python, and is not read")
    tokenizers.write(draft, model, trainer)
    model_changes.write(draft, entries, model, trainer, machine)
    _own_trainer(draft, trainer)
    data = corpus.write(draft, machine, trainer, entries, overrides.prompt)
    masks = "assistant_only_loss" in draft.stack.fields(draft.stack.config(draft.method))
    if draft.has("method.assistant_only") and not masks and overrides.target is None:
        draft.stack = load(stacks.DEFAULT)  # its loss can be on the assistant's turns alone
    rewards.write(draft, machine, trainer, entries, overrides, data)
    _callbacks(draft, trainer)
    names = Machines(each=1, entries=[]) if overrides.hardware is None else Machines()
    _settle(draft, entries)
    computes = entries.values.pop("bnb_4bit_compute_dtype", None)
    trlyaml.arguments(draft, entries.values, overrides, source, None, None, names)
    models.compute_dtype(draft, entries, computes)
    models.loaded_dtype(draft, entries, model)
    _command_line(draft, machine, entries)
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and overrides.hardware is None and "," in str(visible.value):
        draft.warn(
            entry("CUDA_VISIBLE_DEVICES", visible),
            "the script names several GPUs, and the spec is for one, with one process's batch",
            "`--hardware '4 x h100-80gb'` names them",
        )
    for place in machine.assumed[:3]:
        draft.warn(
            Entry("try", None, place.file, place.line),
            "it is taken to succeed; if it fails, the script goes on in another way",
        )
    return draft


def _arguments(entries: Entries, trainer: Object) -> None:
    """The arguments of the configuration, then those of the trainer, of which older versions took several."""
    config = program.argument(trainer, "args")
    value = program.revealed(config.value) if config is not None else None
    if config is not None and isinstance(config.value, Unknown):
        entries.problem("args", config.value, "the configuration of the trainer")
    if isinstance(value, Instance) and value.made is not None:
        value = value.made
    own = _own_fields(value)
    if isinstance(value, Object):
        if value.positional:
            entries.add("output_dir", value.positional[0])
        for name, given in value.keywords.items():
            entries.add(name, given, own=name in own)
        for name, one in value.attributes.items():
            if not name.startswith(("<", "[")) and not isinstance(one, Object):
                entries.add(name, Argument(one, value.places.get(name, value.place)), own=name in own)
        entries.command_line = "<command line>" in value.attributes
        entries.config = value
    for name, given in trainer.keywords.items():
        if name not in DATA and not name.startswith("**") and name not in KEYS.block("trainer"):
            entries.add(name, given)
    for name in ("dataset_text_field", "max_seq_length"):
        if name in trainer.keywords:
            entries.add(name, trainer.keywords[name])
            entries.old = True
    entries.old = entries.old or "tokenizer" in trainer.keywords
    for name, given in trainer.keywords.items():
        if name.startswith("**"):
            entries.problem("**", given.value, "arguments of the trainer")
        elif name in KEYS.block("trainer"):
            entries.others.append((f"trainer.{name}", given))


def _dating(entries: Entries, own: set[str], model: program.Model, trainer: Object) -> dict[str, Entry]:
    """The entries whose names show the version of TRL: the trainer's arguments. Those of the model and its adapter have
    TRL's names only here. Unsloth, which takes arguments of all versions, shows none of this: `tokenizer` of a trainer,
    and `dtype` of `from_pretrained`, which was `torch_dtype` earlier.
    """
    out = {name: one for name, one in entries.values.items() if name in own}
    loaded = model.loaded
    if loaded is not None and models.is_unsloth(loaded):
        return out
    if loaded is not None and "dtype" in loaded.keywords and "dtype" in entries.values:
        out["dtype"] = entries.values["dtype"]
    if trainer.last not in PLAIN:
        for name in {"tokenizer", "max_seq_length"} & set(trainer.keywords):
            out[f"trainer.{name}"] = entry(name, trainer.keywords[name])
    return out


def _own_fields(value: object) -> set[str]:
    """The arguments of a configuration that a class of the script adds."""
    kind = value.attributes.get("<class>") if isinstance(value, Object) else None
    if not isinstance(kind, Class):
        return set()
    ours = {argument for row in TABLE for argument in row.args}
    return {name for one in kind.lineage() for name in one.fields if name not in ours}


def _own_trainer(draft: Draft, trainer: Object) -> None:
    """Report the methods of a trainer that the script overrides, each with its line."""
    kind = trainer.attributes.get("<class>")
    if not isinstance(kind, Class):
        return
    for one in kind.lineage():
        for name, value in one.attributes.items():
            if isinstance(value, Function) and name not in LIFE:
                draft.error(
                    Entry(f"{one.name}.{name}", None, value.label, value.node.lineno),
                    "the script has a trainer with its own method, which may change what is learned",
                    "compare it with TRL's, and leave it out if they learn the same",
                )


def _callbacks(draft: Draft, trainer: Object) -> None:
    given = program.argument(trainer, "callbacks")
    added = [one.positional[0] for one in trainer.calls if one.last == "add_callback" and one.positional]
    values: list[Argument] = list(added)
    if given is not None and isinstance(given.value, list | tuple):
        values += [Argument(one, given.place) for one in given.value]
    elif given is not None and given.value is not None:
        values.append(given)
    for one in values:
        value = one.value
        if isinstance(value, Object) and value.last == "EarlyStoppingCallback":
            patience = value.argument("early_stopping_patience", 0)
            draft.put(
                "eval.patience",
                patience.value if patience is not None else 1,
                Entry("early_stopping_patience", patience.value if patience else 1, value.place.file, value.place.line),
            )
            continue
        name = value.kind.name if isinstance(value, Instance) else getattr(value, "last", "a callback")
        draft.reserve(
            Entry(f"callbacks.{name}", name, one.place.file, one.place.line),
            f"callbacks: {name}",
            "a bundle has only the callbacks of its runtime",
        )


def _settle(draft: Draft, entries: Entries) -> None:
    """Give a fate to what cannot be read, and to arguments of calls that no reader of TRL's keys knows."""
    for one, why in entries.problems:
        if one.key.rpartition(".")[2] in UNREAD:
            draft.warn(one, f"its value is not known ({why}), and changes nothing that is learned")
            draft.note(one, why)
        else:
            draft.error(one, why)
    for name in entries.own:
        draft.note(entries.own[name], "a field of the script's own class")
    for key, given in entries.others:
        row, found = KEYS.get(key), entry(key, given)
        if row is None:
            draft.error(found, "the spec has no place for it", "leave it out if it has no effect")
        elif row.comment and not found.off:
            draft.reserve(found, f"{key}: {_shown(given.value)}", row.comment)
        elif (row.usual is not None and not found.empty and not keys.is_usual(row, found)) or (
            row.refused and not row.irrelevant and not found.off and given.value is not None
        ):
            draft.error(found, row.refused)
        elif given.value is not None or key in KEYS:
            draft.note(found, row.irrelevant or "it is off")


def _shown(value: object) -> str:
    if isinstance(value, Function):
        return value.name
    return value.path if isinstance(value, Name | Object) else str(value)[:60]


def _command_line(draft: Draft, machine: Machine, entries: Entries) -> None:
    places: Iterable[Place] = machine.command_line[:1]
    for place in places:
        draft.warn(
            Entry("command line", None, place.file, place.line),
            "arguments of the script's command line have their defaults; a launch can give others",
        )
