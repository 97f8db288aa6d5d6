"""Collect the arguments of a script's trainer and of its configuration as entries for the importer of TRL's keys."""

from __future__ import annotations

from xpc.compiler.importing import keys
from xpc.compiler.importing.python import models, program
from xpc.compiler.importing.python.entries import Entries, entry
from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.attributes import EACH, item
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Class,
    Function,
    Instance,
    Location,
    Object,
    Row,
    Unknown,
)
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.text.values import RENAMES
from xpc.compiler.importing.trl import versions
from xpc.compiler.language.schema import TABLE

KEYS = keys.load("python/keys.toml")
DATA = (
    "train_dataset", "eval_dataset", "processing_class", "tokenizer", "model", "ref_model", "args", "peft_config",
    "data_collator", "callbacks", "reward_funcs", "tools", "environment_factory", "formatting_func", "teacher_model",
    "reward_processing_classes", "model_init_kwargs", "dataset_text_field", "max_seq_length",
)  # fmt: skip
"""Arguments of trainers that this module skips, because other modules of the importer read them."""
PLAIN = ("Trainer", "Seq2SeqTrainer")
CONSTANT_LENGTH = {"dataset_text_field": 2, "formatting_func": 3}
"""Maps each argument that both ConstantLengthDataset and trainers have to its position in ConstantLengthDataset."""


def data_sets(machine: Machine, trainer: Object) -> None:
    """Prepare the trainer's datasets for the import. TRL's ConstantLengthDataset (up to trl 0.19), which joins texts
    and cuts them into rows, is replaced by its inner dataset and equivalent arguments of the trainer; a dataset of the
    script's own class is replaced by the row that the class returns.
    """
    for name in ("train_dataset", "eval_dataset"):
        given = program.argument(trainer, name)
        value = program.revealed(given.value) if given is not None else None
        inner = value.argument("dataset", 1) if isinstance(value, Object) else None
        if isinstance(value, Object) and value.last == "ConstantLengthDataset" and inner is not None:
            own = {key: one for key, n in CONSTANT_LENGTH.items() if (one := value.argument(key, n)) is not None}
            cut = value.argument("seq_length", 5) or Argument(1024, value.location)
            packs = {"packing": Argument(True, value.location), "max_seq_length": cut}
            trainer.keywords = {**trainer.keywords, name: inner, **own, **packs}
        elif given is not None:
            found = _each_row(machine, given)
            if found is not given:
                trainer.keywords[name] = found


def _each_row(machine: Machine, given: Argument) -> Argument:
    """For a dataset of the script's own class, return the row of its `__getitem__`, which represents all rows. Any
    other dataset is returned unchanged.
    """
    value, location = given.value, given.location
    if not isinstance(value, Instance | Object):
        return given
    kind = value.kind if isinstance(value, Instance) else value.attributes.get("<class>")
    method = kind.find("__getitem__") if isinstance(kind, Class) else None
    if not isinstance(method, Function):
        return given
    with machine.over_rows():
        row = machine.call(Bound(method, value), [Argument(EACH, location)], {}, method.node)
    if isinstance(row, Object) and row.path.endswith("()"):
        labels = row.attributes.get("['labels']")
        row = {"input_ids": item(machine, row, "input_ids", method.node)} | ({"labels": labels} if labels else {})
    if isinstance(row, dict | Row | Unknown):
        return Argument(row, location)
    why = "the import cannot read the rows of this class"
    return Argument(Unknown(why, Location(method.label, method.node.lineno), row), location)


def gather(entries: Entries, trainer: Object) -> None:
    """Add the arguments of the trainer's configuration to the entries. Also add those arguments of the trainer that
    belong to the configuration in newer versions of TRL.
    """
    config = program.argument(trainer, "args")
    value = program.revealed(config.value) if config is not None else None
    if config is not None and isinstance(config.value, Unknown):
        entries.problem("args", config.value, "the configuration of the trainer")
    if isinstance(value, Instance) and value.made is not None:
        value = value.made
    own = _own_fields(value, functions.TRAINERS[trainer.last])
    if isinstance(value, Object):
        if value.positional:
            entries.add("output_dir", value.positional[0])
        for name, given in value.keywords.items():
            entries.add(name, given, own=name in own)
        for name, one in value.attributes.items():
            if not name.startswith(("<", "[")) and not isinstance(one, Object):
                entries.add(name, Argument(one, value.locations.get(name, value.location)), own=name in own)
        for call in value.calls:
            if call.last.startswith("set_"):
                why = Unknown("the import does not read this method of the configuration", call.location)
                entries.problem(call.last, why, "settings", call.location)
        entries.command_line = "<command line>" in value.attributes
        entries.config = value
    for name, given in trainer.keywords.items():
        if name.startswith("**"):
            entries.problem("**", given.value, "arguments of the trainer")
        elif name in KEYS.block("trainer"):
            entries.others.append((f"trainer.{name}", given))
        elif name not in DATA:
            entries.add(name, given)
    for name in ("dataset_text_field", "max_seq_length"):
        if name in trainer.keywords:
            entries.add(name, trainer.keywords[name])
            entries.old = True
    entries.old = entries.old or "tokenizer" in trainer.keywords


def dating_entries(entries: Entries, own: set[str], model: program.Model, trainer: Object) -> dict[str, Entry]:
    """The arguments that exist only in some versions of TRL, by which the importer recognizes the script's version.

    Arguments of the model and the adapter are excluded, because their names are already replaced by TRL's. The
    trainer's `tokenizer`, `processing_class` and `max_seq_length`, and `dtype` (earlier `torch_dtype`) of
    `from_pretrained` are added, unless Unsloth, which accepts the arguments of all versions, loads the model.
    """
    out = {name: one for name, one in entries.values.items() if name in own}
    loaded = model.loaded
    if loaded is not None and models.is_unsloth(loaded):
        return out
    if loaded is not None and "dtype" in loaded.keywords and "dtype" in entries.values:
        out["dtype"] = entries.values["dtype"]
    if trainer.last not in PLAIN:
        for name in {"tokenizer", "max_seq_length", "processing_class"} & set(trainer.keywords):
            out[f"trainer.{name}"] = entry(name, trainer.keywords[name])
    return out


def _own_fields(value: object, method: str) -> set[str]:
    """The fields that the script's own subclass of a configuration class adds and that no version of TRL has; empty
    without a subclass.
    """
    kind = value.attributes.get("<class>") if isinstance(value, Object) else None
    if not isinstance(kind, Class):
        return set()
    ours = {argument for row in TABLE for argument in row.args}
    return {
        name
        for one in kind.lineage()
        for name in one.fields
        if name not in ours and (name not in RENAMES or not versions.having(method, name))
    }
