"""Convert a Python training script to a draft of the spec. The trainer's arguments are imported like the keys of a TRL
YAML file.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Mapping

from xpc.compiler import registry, stacks
from xpc.compiler.importing import families, keys
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import DEFAULT_GPU, Machines, Overrides, load
from xpc.compiler.importing.python import (
    callers,
    conditions,
    corpus,
    model_changes,
    models,
    program,
    rewards,
    runs,
    tokenizers,
    trackers,
    trainer_arguments,
    unsloth,
    usage,
)
from xpc.compiler.importing.python.entries import Entries, entry, unread
from xpc.compiler.importing.python.interpreter import functions, script
from xpc.compiler.importing.python.interpreter.machine import Command, Machine
from xpc.compiler.importing.python.interpreter.source import Part, parts
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Class,
    Function,
    Instance,
    Location,
    Name,
    Object,
)
from xpc.compiler.importing.text.entries import OWN_METHOD, Entry, Unreadable
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import Stack
from xpc.grammar.record import evolve

KEYS = keys.load("python/keys.toml")
TRANSFORMERS = ("TrainingArguments", "Seq2SeqTrainingArguments")
LIFE = (
    "__init__", "log", "save_model", "evaluate", "_save", "prediction_step", "__repr__", "push_to_hub",
    "_save_checkpoint", "create_model_card", "store_metrics", "log_metrics", "save_metrics", "__post_init__",
    "get_eval_dataloader", "get_test_dataloader", "evaluation_loop", "predict", "_get_eval_sampler",
)  # fmt: skip
"""Methods of a trainer for logging, evaluating and saving, which a script may override without changing what is
learned.
"""
IDENTITY = re.compile("TOKEN|KEY|SECRET|RANK|WORLD_SIZE|WANDB|MLFLOW|SWANLAB|CLEARML|HF_|CUDA|MASTER_")
"""Matches environment variables for accounts, trackers and launchers, which do not change what is learned."""
TESTS_LENGTH = re.compile(r"[\"']max_seq_length[\"'] in \b")
"""Matches a script's test of whether the installed version of TRL has the argument `max_seq_length`."""
UNREAD = (
    "run_name", "logging_dir", "output_dir", "hub_model_id", "hub_token", "report_to", "dataset_num_proc",
    "local_rank", "dataloader_num_workers", "project", "trackio_space_id",
)  # fmt: skip
"""Arguments that do not affect what is learned, so that an unknown value is only a warning."""


def python(text: str, file: str, overrides: Overrides) -> Draft:
    """Convert a script or a notebook to a draft of the spec. If the file is a module that starts no run, convert a
    nearby script that calls it. Raises Unreadable if nothing can be imported.
    """
    try:
        return _script(text, file, overrides)
    except Unreadable:
        found = _by_caller(file, overrides)
        if found is None:
            raise
        return found
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error


def _script(text: str, file: str, overrides: Overrides) -> Draft:
    """Convert a file. If no code in the file starts the training, convert a script that imports the file as a module
    and calls it. Raises Unreadable.
    """
    draft, machine = _draft(text, file, overrides, {})
    if machine.not_called:
        found = _by_caller(file, overrides)
        if found is not None:
            return found
    return _completed(draft, machine, text, file, overrides) if overrides.partial else draft


def _completed(draft: Draft, machine: Machine, text: str, file: str, overrides: Overrides) -> Draft:
    """With `--partial`, complete the draft: take required arguments from documented commands, and assume an outcome for
    each condition whose outcome is unknown.
    """
    taken: dict[str, Entry] = {}
    for _ in range(3):
        draft, machine = _decided(draft, machine, text, file, overrides)
        names = [one for one in usage.required(draft) if one not in taken]
        more = usage.stated(names, text, file, overrides) if names else {}
        if not more:
            break
        taken |= more
        overrides = evolve(overrides, sets={**{name: str(one.value) for name, one in more.items()}, **overrides.sets})
        draft, machine = _draft(text, file, overrides, machine.assumed_conditions)
    usage.report(draft, taken)
    conditions.report(draft, machine)
    return draft


def _named(trainer: Object, module: str) -> bool:
    """Whether the file `module` contains the call that creates the trainer."""
    return posixpath.basename(trainer.location.file) == module


def _by_caller(file: str, overrides: Overrides) -> Draft | None:
    """The draft of a script near the module `file` that imports the module and starts its training. None if there is no
    such script.
    """
    for name, text, options in callers.of(file, overrides):
        try:
            options = evolve(options, module=posixpath.basename(file))
            draft, machine = _draft(text, name, options, {})
        except (Unreadable, RecursionError):
            continue
        if (
            machine.not_called
            or not machine.trained
            or not any(_named(one, options.module) for one in machine.calls if functions.is_trainer(one.path))
        ):
            continue
        if overrides.partial:
            draft = _completed(draft, machine, text, name, options)
        draft.warn(None, f"`{file}` is a module that `{name}` calls, so the spec is imported from `{name}`")
        return draft
    return None


def _decided(draft: Draft, machine: Machine, text: str, file: str, overrides: Overrides) -> tuple[Draft, Machine]:
    """Interpret a script repeatedly, assuming the outcomes of further conditions each time, until no error depends on
    an unknown outcome.
    """
    for _ in range(conditions.PASSES):
        found = conditions.deciding(draft, machine)
        if not found:
            break
        assumed = {**machine.assumed_conditions, **{one: conditions.usual(machine, one) for one in found}}
        try:
            draft, machine = _draft(text, file, overrides, assumed)
        except Unreadable:
            break
    return draft, machine


def _draft(text: str, file: str, overrides: Overrides, assumed: Mapping[Location, bool]) -> tuple[Draft, Machine]:
    """Interpret a script, and convert the training that it starts. Returns the draft, and the machine that interpreted
    the script. Raises Unreadable.
    """
    found, broken = parts(text, file)
    machine = _interpreted(found, overrides, assumed)
    trainers = runs.trainers_of(machine)
    trainers = [one for one in trainers if _named(one, overrides.module)] or trainers
    trainer = program.trainer_of(machine, trainers, overrides.pick, overrides.partial)
    model = program.model_of(program.argument(trainer, "model"))
    entries = Entries()
    trainer_arguments.data_sets(machine, trainer)
    trainer_arguments.gather(entries, trainer)
    own = set(entries.values)
    trackers.gather(entries, machine)
    models.gather(entries, model, trainer)
    tokenizers.gather(entries, model, trainer)
    dating = trainer_arguments.dating_entries(entries, own, model, trainer)
    chosen = evolve(overrides, method=overrides.method or functions.TRAINERS[trainer.last])
    draft, source = trlyaml.start(chosen, entries.values, file, dating, text)
    draft.transformers = entries.config is not None and entries.config.last in TRANSFORMERS
    if model.loaded is not None and models.is_unsloth(model.loaded):
        unsloth.write(entries, draft, trainer, machine.packages)
    for cell in broken:
        draft.warn(None, f"{cell} is not Python, so the import ignores it")
    tokenizers.write(draft, model, trainer)
    model_changes.write(draft, entries, model, trainer, machine)
    _own_trainer(draft, trainer)
    runs.changed_parts(draft, trainer)
    runs.repeated(draft, machine, trainer)
    data = corpus.write(draft, machine, trainer, entries, overrides.prompt)
    masks = "assistant_only_loss" in draft.stack.fields(draft.stack.config(draft.method))
    if draft.has("method.assistant_only") and not masks and overrides.target is None:
        # the spec needs the default stack, the only one with `assistant_only_loss`
        draft.stack = load(stacks.DEFAULT)
    rewards.write(draft, machine, trainer, entries, overrides, data)
    _callbacks(draft, trainer)
    _arguments(draft, entries, source, overrides)
    models.loaded_dtype(draft, entries, model)
    _assumptions(draft, machine, entries, overrides)
    if len(trainers) > 1 and overrides.pick is None:
        why = f"the script trains {len(trainers)} times ({runs.listed(trainers)}); the spec is the first training"
        draft.error(trainer.location.entry(trainer.last), why, "`--pick N` chooses one")
    return draft, machine


def _interpreted(found: list[Part], overrides: Overrides, assumed: Mapping[Location, bool]) -> Machine:
    """Interpret the script with the arguments of the command that starts it, as if it ran on the GPUs that `--hardware`
    states.
    """
    gpu = registry.find_gpu((overrides.hardware or DEFAULT_GPU).rpartition(" ")[2])
    bf16 = gpu is None or gpu.bf16_tflops is not None
    count, several, _ = (overrides.hardware or "").partition(" x ")
    launch = overrides.launch
    command = None if launch is None else Command(launch.arguments, launch.used, launch.declared, overrides.environment)
    return script.followed(found, overrides.read, bf16, overrides.sets, assumed, int(count) if several else 1, command)


def _arguments(draft: Draft, entries: Entries, source: Stack, overrides: Overrides) -> None:
    """Import the arguments of the trainer and the model as if they were keys of TRL's YAML. Also import the options of
    the launcher.
    """
    launch = overrides.launch
    alone = overrides.hardware is None and launch is None and overrides.accelerate is None
    names = Machines(each=1, entries=[]) if alone else Machines()
    if launch is not None:
        overrides = evolve(overrides, accelerate=launch.options(draft, names))
    _settle(draft, entries)
    computes = entries.values.pop("bnb_4bit_compute_dtype", None)
    models.quantization_kind(draft, entries)
    trlyaml.arguments(draft, entries.values, overrides, source, names)
    families.own_code(draft, "the script")
    models.compute_dtype(draft, entries, computes)


def _assumptions(draft: Draft, machine: Machine, entries: Entries, overrides: Overrides) -> None:
    """Warn about assumptions of the interpreter, such as defaults of the command line. A function's parameter that no
    call in the script passes is reported as an error, because its value is unknown.
    """
    for location in machine.command_line[:1]:
        reason = "the spec has the defaults of the script's command line, which a launch can override"
        draft.warn(location.entry("command line"), reason)
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES")
    count = len(visible.value.split(",")) if visible is not None and isinstance(visible.value, str) else 0
    if visible is not None and overrides.hardware is None and count > 1:
        reason = "one process uses several GPUs; the spec has one GPU, with the global batch of one process"
        draft.warn(entry("CUDA_VISIBLE_DEVICES", visible), reason, f"`--hardware '{count} x h100-80gb'` names the GPUs")
    for location in machine.assumed[:3]:
        why = "the import assumes that this `try` block succeeds; if it fails, the script continues differently"
        draft.warn(location.entry("try"), why)
    for location in list(dict.fromkeys(machine.text_only))[:3]:
        condition = " ".join(machine.conditions[location].split())[:100]
        draft.warn(location.entry(condition), "the import assumes that the model reads only text")
    if not draft.has("batch.seq") and any(map(TESTS_LENGTH.search, machine.texts.values())):
        draft.warn(None, "the script passes `max_seq_length` only to versions of TRL that have it; the import assumes "
                   "the newest version, and the spec does not state it", "`batch { seq = N }` states it")  # fmt: skip
    _unset(draft, machine, entries)
    other = next((one for one in machine.calls if one.path.startswith("modelscope.")), None)
    if other is not None:
        why = "the script loads from ModelScope; the spec names the same repository of the Hugging Face Hub"
        draft.warn(other.location.entry("modelscope"), why)
    for each in machine.defaulted:
        reason = f"no call in the script passes this parameter; the spec has the defaults of its class `{each.kind}`"
        draft.error(each.location.entry(each.name), reason, "import the script that calls this function")


def _unset(draft: Draft, machine: Machine, entries: Entries) -> None:
    """Warn if arguments or conditions depend on unset environment variables, which the importer assumes to be empty."""
    for one, why in entries.unset:
        draft.warn(one, f"{why}; the import assumes that this value is empty")
    names = [(why, location) for why, location in machine.unset.items() if not IDENTITY.search(why)]
    for why, location in names[:3]:
        draft.warn(location.entry("environment"), f"{why}; the import assumes that this value is empty")


def _own_trainer(draft: Draft, trainer: Object) -> None:
    """Report an error for each method of the trainer that the script overrides, except methods for logging, evaluating
    and saving.
    """
    kind = trainer.attributes.get("<class>")
    if not isinstance(kind, Class):
        return
    for one in kind.lineage():
        for name, value in one.attributes.items():
            if not isinstance(value, Function) or name in LIFE:
                continue
            found = Entry(f"{one.name}.{name}", None, value.label, value.node.lineno)
            if name == "_get_train_sampler" and _in_order(value) and not METHODS[draft.method].grouped:
                draft.put("data.shuffle", False, found)
            else:
                draft.error(found, *OWN_METHOD)


def _in_order(sampler: Function) -> bool:
    """Whether a method returns only samplers that keep the order of the rows."""
    values = [one.value for one in ast.walk(sampler.node) if isinstance(one, ast.Return) and one.value is not None]
    texts = [ast.unparse(one) for one in values if ast.unparse(one) != "None"]
    return bool(texts) and all(re.match(r"[\w.]*\bSequentialSampler\(", one) for one in texts)


def _callbacks(draft: Draft, trainer: Object) -> None:
    """Import the trainer's callbacks. Also warn if the script resumes from a checkpoint in a folder that it names."""
    for call in trainer.calls:
        resumed = call.argument("resume_from_checkpoint", 0) if call.last == "train" else None
        if resumed is not None and isinstance(resumed.value, str):
            found = resumed.location.entry("resume_from_checkpoint", resumed.value)
            draft.note(found, "the run resumes from its own folder")
            draft.warn(
                found, "the script resumes from this checkpoint; a run of the spec resumes only from its own folder"
            )
    given = program.argument(trainer, "callbacks")
    added = [one.positional[0] for one in trainer.calls if one.last == "add_callback" and one.positional]
    values: list[Argument] = list(added)
    if given is not None and isinstance(given.value, list | tuple):
        values += [Argument(one, given.location) for one in given.value]
    elif given is not None and given.value is not None:
        values.append(given)
    for one in values:
        value = one.value
        if isinstance(value, Object) and value.last == "EarlyStoppingCallback":
            patience = value.argument("early_stopping_patience", 0)
            count = patience.value if patience is not None else 1
            known = isinstance(count, int)
            found = value.location.entry("early_stopping_patience", count if known else None)
            if known:
                draft.put("eval.patience", count, found)
            else:
                draft.error(found, getattr(count, "why", "it is not a number"))
            continue
        name = value.kind.name if isinstance(value, Instance) else getattr(value, "last", "a callback")
        why = "a bundle has only the callbacks of its runtime"
        draft.reserve(one.location.entry(f"callbacks.{name}", name), f"callbacks: {name}", why)


def _settle(draft: Draft, entries: Entries) -> None:
    """Report arguments with unknown values. Then report each argument that the importer of TRL's keys does not read as
    a comment of the spec, an error, or a key without effect.
    """
    for one, why in entries.problems:
        if one.key.rpartition(".")[2] in UNREAD:
            draft.warn(one, f"its value is not known ({why}), but does not change what is learned")
            draft.note(one, why)
        else:
            draft.error(one, why)
    target = entries.values.pop("max_target_length", None)
    draft.note(target, KEYS["trainer.max_target_length"].irrelevant)
    for name in entries.own:
        draft.note(entries.own[name], "a field of the script's own class")
    for key, given in entries.others:
        row, found = KEYS.get(key), entry(key, given)
        unknown = unread(given.value)
        off = not unknown and (found.off or _nothing(given.value))
        if row is None and key.startswith("quantization."):
            draft.warn(found, "BitsAndBytesConfig has no such argument, and ignores it")
            draft.note(found, "BitsAndBytesConfig ignores it")
        elif row is None:
            draft.error(
                found, "no setting of a spec corresponds to it", "leave it out if it does not change the training"
            )
        elif row.comment and not off:
            draft.reserve(found, f"{key}: {_shown(given.value)}", row.comment)
        elif row.usual is not None and unknown:
            draft.error(found, f"its value is not known ({unknown}): {row.refused}")
        elif (row.usual is not None and not found.empty and not keys.is_usual(row, found)) or (
            row.refused and not row.irrelevant and not off
        ):
            draft.error(found, row.refused)
        elif given.value is not None or key in KEYS:
            draft.note(found, row.irrelevant or "it is off")


def _nothing(value: object) -> bool:
    """Whether a value is None, or a list or tuple that contains only None, such as `optimizers=(None, None)`."""
    return value is None or (isinstance(value, list | tuple) and all(one is None for one in value))


def _shown(value: object) -> str:
    if isinstance(value, Function):
        return value.name
    return value.path if isinstance(value, Name | Object) else str(value)[:60]
