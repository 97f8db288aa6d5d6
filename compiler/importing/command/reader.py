"""Convert a training command to a draft of the spec: its program, arguments, environment variables and named files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.command import fastchat, own_script, programs, usage
from xpc.compiler.importing.command.launcher import launcher
from xpc.compiler.importing.command.line import Line, parsed
from xpc.compiler.importing.command.search import chosen, training_commands
from xpc.compiler.importing.draft import Draft, SettingText
from xpc.compiler.importing.llamafactory import command as llamafactory_command
from xpc.compiler.importing.overrides import Machines, Overrides, native
from xpc.compiler.importing.text import table
from xpc.compiler.importing.text.entries import Entries, Entry, Unreadable, not_set, shown, text
from xpc.compiler.importing.text.shell import Call, Word, calls
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.language.methods import METHODS
from xpc.grammar.record import evolve

ENVIRONMENT = {
    "WANDB_PROJECT": "wandb_project", "MLFLOW_EXPERIMENT_NAME": "mlflow_experiment_name",
    "SWANLAB_PROJECT": "swanlab_project", "CLEARML_PROJECT": "clearml_project", "CLEARML_TASK": "clearml_task",
}  # fmt: skip
NAMING = ("save", "track.name", "track.project", "save.hub.name")
"""Settings that only name a run. They are left out of a sweep, because xpc itself names the runs of a sweep."""
NAMES = ("output_dir", "run_name", "logging_dir", "hub_model_id", "cache_dir", *ENVIRONMENT.values())
"""Arguments that only name a run or a folder, and do not change the training."""


def command(text_: str, file: str, overrides: Overrides, launch: Entries | None, zero: Entries | None) -> Draft:
    """Convert a training command of a shell script to a draft of the spec; the values of a `for` loop become a sweep.
    Raises Unreadable if the script has no training command, or several without `--pick`.
    """
    loops: dict[str, tuple[str, ...]] = {}
    overrides = evolve(overrides, sets={**_slurm(text_), **overrides.sets})
    at, training = chosen(text_, overrides, loops)
    draft = _converted(training, text_, file, overrides, launch, zero)
    numbers = usage.unset(draft) if overrides.partial else set()
    taken = usage.stated(numbers, text_, file, overrides) if numbers else {}
    if taken:
        overrides = evolve(overrides, sets={**{key: str(one.value) for key, one in taken.items()}, **overrides.sets})
        at, training = chosen(text_, overrides, loops)
        draft = _converted(training, text_, file, overrides, launch, zero)
        usage.report(draft, taken, numbers)
    for name, values in loops.items():
        _sweep(draft, name, values, at, text_, file, overrides, launch, zero)
    return draft


SLURM = re.compile(
    r"^#SBATCH\s+(?:--(nodes|gres|gpus-per-node|gpus)|-(N|G))[= ]\s*(?:gpu:)?(?:[a-z]\w*:)?(\d+)", re.M | re.I
)
"""A pattern for a line such as `#SBATCH --gres=gpu:a100:4`, which states the nodes of a Slurm job, or the GPUs of each
node.
"""


def _slurm(text_: str) -> dict[str, str]:
    """The variables that Slurm sets for a job, as far as the script's `#SBATCH` lines decide them: the number of nodes
    (1 by default), and of GPUs on each node.
    """
    if not re.search("^#SBATCH", text_, re.M):
        return {}
    found = {(one[1] or one[2]).lower(): one[3] for one in SLURM.finditer(text_)}
    nodes = found.get("nodes") or found.get("n") or "1"
    gpus = found.get("gres") or found.get("gpus-per-node") or (nodes == "1" and (found.get("gpus") or found.get("g")))
    out = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    return out | ({"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus} if gpus else {})


def _converted(call: Call, text_: str, file: str, overrides: Overrides, launch: Entries | None,
               zero: Entries | None) -> Draft:  # fmt: skip
    written: dict[str, str] = {}
    moved: dict[str, str] = {}
    commands = calls(text_, overrides.sets, read=overrides.read, written=written)
    environment = [word for one in commands for word in one.environment]
    near = evolve(overrides, read=_reader(overrides, written, moved)).below(call.folder)
    near = evolve(near, environment=_seen(call, commands, file))
    draft = _draft(parsed(call, file), environment, file, near, launch, zero)
    for name, found in moved.items():
        draft.warn(None, f"`{name}` is a path of another machine: the import reads `{found}`")
    return draft


def _seen(call: Call, commands: Sequence[Call], file: str) -> dict[str, Entry]:
    """The environment variables that the program of a command gets: those that the script exports, and those that stand
    before the program (`X=1 python a.py`).
    """
    assigned: dict[str, Entry | None] = {}
    exported: set[str] = set()
    for one in commands:
        if one.words == call.words and one.environment == call.environment:
            break
        if not one.words or one.exported:
            exported.update(word.text.partition("=")[0] for word in (*one.environment, *one.words) if one.exported)
            assigned.update(_variable(word, file) for word in one.environment)
    own = dict(_variable(word, file) for word in call.environment)
    return {key: one for key, one in {**assigned, **own}.items() if one is not None and (key in exported or key in own)}


def _variable(word: Word, file: str) -> tuple[str, Entry | None]:
    """Return a pair: the name and the value of an assignment. None if the value is unknown."""
    name, _, value = word.text.partition("=")
    return name, None if word.open else Entry(f"${name}", value, file, word.line, value)


def _reader(overrides: Overrides, written: Mapping[str, str], moved: dict[str, str]) -> Callable[[str], bytes | None]:
    """Make a reader of files that also finds the files that the script itself writes (`written`).

    For a path of another machine, such as `/home/me/repo/configs/x.yaml`, it tries the last parts of the path in this
    repository. A file that it finds in this way is recorded in `moved`.
    """

    def read(name: str) -> bytes | None:
        if name in written:
            return written[name].encode()
        data = overrides.read(name)
        parts = name.split("/")
        if data is not None or name[:1] not in ("/", "~", "$") or name.endswith(".py"):
            return data
        for n in range(1, len(parts) - 1):
            end = "/".join(parts[n:])
            data = overrides.read(end)
            if data is not None:
                moved[name] = end
                return data
        return None

    return read


def _sweep(draft: Draft, name: str, values: Sequence[str], at: int, text_: str, file: str, overrides: Overrides,
           launch: Entries | None, zero: Entries | None) -> None:  # fmt: skip
    """Import the command once for each value of a loop's variable. Settings in which the results differ become the
    lists of a sweep.
    """
    changed: dict[str, list[str]] = {}
    for value in values:
        sets = {**overrides.sets, name: value}
        training = training_commands(text_, evolve(overrides, sets=sets))
        if at >= len(training):
            return
        member = _converted(training[at], text_, file, evolve(overrides, sets=sets), launch, zero)
        for path, written in {**member.settings, "model": SettingText(member.model)}.items():
            if path not in NAMING and path not in ("hardware", "nodes"):
                changed.setdefault(path, []).append(written.text)
        if member.sources != draft.sources:
            loop = Entry(f"${name}", " ".join(values), file, 0)
            draft.error(
                loop,
                "all runs of a sweep have the same data, but this loop changes the data",
                f"`--set {name}=VALUE` takes one",
            )
            return
    for path, texts in changed.items():
        if len(texts) == len(values) and len(set(texts)) > 1:
            draft.sweep[path] = texts
            draft.settings.pop(path, None)


def _draft(line: Line, environment: list[Word], file: str, overrides: Overrides, launch: Entries | None,
           zero: Entries | None) -> Draft:  # fmt: skip
    # without a launcher, `python train.py` starts one process
    found, options = Machines(each=1 if line.launcher == "python" else None), line.options
    entries = dict(line.arguments)
    config = entries.pop("config", None)
    if llamafactory_command.is_llamafactory(line.program, entries):
        return _factory(line, environment, file, overrides, launch, zero)
    path, script_text = programs.found(line.program, overrides)
    if llamafactory_command.STARTED.search(script_text):
        made = _factory(line, environment, file, overrides, launch, zero)
        made.warn(None, f"`{path}` starts LLaMA-Factory, and what it does before is not read")
        return made
    if line.program.startswith("axolotl"):
        raise Unreadable(f"`{line.program}` reads a file: import that file instead")
    rest, empty = list(line.rest), [one for one in line.rest if re.fullmatch(r"\$\{?\d+\}?", one.text)]
    named = [one for one in rest if one.text.endswith((".yaml", ".yml", ".json"))]
    if config is None and len(named) == 1 and len(rest) == 1 + len(empty):
        config = Entry("config", named[0].text, file, named[0].line, unset=named[0].open)
        # the parser reads only the name of the file; an argument without a value, such as an unset `$5`, is ignored
        rest, line = [], evolve(line, rest=(named[0],), dropped=(*line.dropped, *empty))
    overridden: list[Entry] = []
    lost = config is not None and overrides.read(text(config) or "") is None
    if config is not None and not lost:
        inside = _file(config, overrides)
        overridden += [one for key, one in inside.items() if key in entries]
        entries = {**inside, **entries}
    named_launch = options.get("config_file")
    if named_launch is not None and launch is None and overrides.read(text(named_launch) or "") is not None:
        launch = _file(named_launch, overrides, "--accelerate")
    if "fsdp_config" in entries:
        entries["fsdp_config"] = _mapping(entries["fsdp_config"], overrides)
    declared: dict[str, Entry] = {}
    unread: list[str] = []
    script, by_names, trainer = own_script.draft(line, entries, file, overrides, launch, zero, declared, unread)
    if script is not None:
        _dropped(script, line, file)
    if script is not None and not by_names:
        return _with_environment(script, environment, file)
    entries = {**declared, **entries}
    unset = {key: one for key, one in entries.items() if one.unset and key not in ("deepspeed", "deepspeed_config")}
    entries = {key: one for key, one in entries.items() if key not in unset}
    method = overrides.method or _method(line.program)
    wandb = [Entry(ENVIRONMENT[name], value, file, word.line) for word in environment
             for name, _, value in [word.text.partition("=")] if name in ENVIRONMENT]  # fmt: skip
    entries.update({one.key: one for one in wandb if one.key not in entries})
    chat = method in (None, "sft") and fastchat.is_fastchat(line.program, entries, overrides)
    if not chat and "data_path" in entries and programs.found(line.program, overrides)[1]:
        entries = {"dataset_path" if key == "data_path" else key: one for key, one in entries.items()}
        method = method or (script.method if script is not None else "sft")
    short = {} if chat else _abbreviated(entries)
    entries = {short.get(key, key): one for key, one in entries.items()}
    draft, source = trlyaml.start(evolve(overrides, method=method or ("sft" if chat else None)), entries, file)
    for key, name in short.items():
        draft.warn(entries[name], f"it is read as `{name}`: argparse takes the beginning of a name"
                   if name.startswith(key) else f"the script's own name is read as TRL's `{name}`")  # fmt: skip
    _unset(draft, unset)
    for why in unread:
        draft.warn(None, why)
    if trainer is not None:
        draft.error(trainer, f"the script trains with a trainer of its own, and the spec with {draft.method} of TRL",
                    "compare the two trainers; if both learn the same, leave the script's trainer out")  # fmt: skip
    _dropped(draft, line, file)
    for one in line.again:
        draft.warn(one, f"it is given twice: the last value, {shown(line.arguments[one.key])}, counts")
    if config is not None and config.unset:
        name = config.unset.removeprefix("$")
        draft.error(config, f"the script does not set {config.unset}", f"`--set {name}=VALUE` sets it")
    elif config is not None and lost:
        draft.error(
            config, "the file does not exist, and most settings of the run are in it", "import that file itself"
        )
    elif config is not None:
        draft.mark(config, "mapped", "the file was read")
        for over in overridden:
            draft.note(over, f"line {line.arguments[over.key].line} of the command overrides it")
    if chat:
        entries = fastchat.fastchat(draft, entries, line.program, overrides)
        # FastChat's scripts use `evaluation_strategy`, so they need a version of transformers that has this argument
        source, _ = native({"evaluation_strategy"}, draft.method, None)
    _launch_file(draft, named_launch, launch)
    launch = launcher(draft, line, found, launch)
    for path in ("deepspeed", "deepspeed_config"):
        chosen = entries.get(path)
        if chosen is not None and isinstance(chosen.value, str) and chosen.value.startswith("$") and zero is None:
            draft.error(
                chosen, "the script does not set the variable that names the file", "`--deepspeed FILE` names it"
            )
    trlyaml.arguments(draft, entries, overrides, source, launch, zero, found)
    visible = overrides.environment.get("CUDA_VISIBLE_DEVICES")
    if line.launcher == "python" and overrides.hardware is None and visible is not None and "," in str(visible.value):
        draft.warn(visible, "the script names several GPUs; the spec has one GPU, with the global batch of one process",
                   "`--hardware '4 x h100-80gb'` names the GPUs")  # fmt: skip
    for word in rest:
        why, how = not_set(word.open) if word.open else ("an argument without a key", "")
        draft.error(Entry(word.text, None, file, word.line), why, how)
    return _with_environment(own_script.better(draft, script), environment, file)


OWN_NAMES = {
    "use_lora": "use_peft", "lora_rank": "lora_r", "lr": "learning_rate", "num_epochs": "num_train_epochs",
    "epochs": "num_train_epochs", "grad_accum": "gradient_accumulation_steps",
    "gradient_accumulation": "gradient_accumulation_steps", "grad_accum_steps": "gradient_accumulation_steps",
}  # fmt: skip
"""Clear argument names that many custom scripts use, each with TRL's name for the argument."""


def _abbreviated(entries: Mapping[str, Entry]) -> dict[str, str]:
    """The arguments that TRL has under another name. A name may be abbreviated if no other name begins in the same way,
    or it may be one of OWN_NAMES.
    """
    from xpc.compiler.importing.python.interpreter.parsed_classes import argument_names

    names = argument_names()
    out: dict[str, str] = {}
    for key in entries:
        found = [one for one in names if one.startswith(key)] if len(key) > 3 and key not in names else []
        name = found[0] if len(found) == 1 else OWN_NAMES.get(key, "")
        if name and key not in names and name not in entries and name not in out.values():
            out[key] = name
    return out


def _dropped(draft: Draft, line: Line, file: str) -> None:
    """Warn about words of the command that the import ignores. They are variables that are not set, or depend on a
    condition whose outcome is unknown.
    """
    for dropped in line.dropped:
        why = "the script does not set this variable; the import assumes that the variable is empty"
        if ":" in dropped.text:
            why = "the import cannot evaluate the condition that adds words here, and leaves them out"
        draft.warn(Entry(dropped.text, None, file, dropped.line), why)


def _mapping(entry: Entry, overrides: Overrides) -> Entry:
    """The argument `fsdp_config`. If it is the name of a JSON or YAML file, it is replaced by the keys of the file."""
    name = text(entry) or ""
    if entry.mapping or not name.endswith((".json", ".yaml")) or overrides.read(name) is None:
        return entry
    inside = {key: evolve(one, key=f"{entry.key}.{key}") for key, one in _file(entry, overrides).items()}
    return Entry(entry.key, inside, entry.file, entry.line)


def _with_environment(draft: Draft, environment: list[Word], file: str) -> Draft:
    """Record how the environment variables that the script sets were imported, and return the draft."""
    for word in environment:
        _environment(draft, word, file)
    return draft


def _launch_file(draft: Draft, named: Entry | None, launch: Entries | None) -> None:
    """Record how accelerate's `--config_file` was imported. The file was read, or the ZeRO stage was taken from its
    name. If it is missing, an error is reported.
    """
    if named is None:
        return
    if launch is not None:
        draft.mark(named, "mapped", "the file was read")
        draft.read.append(launch)
    elif named.unset:
        draft.error(named, f"the script does not set {named.unset}", "`--accelerate FILE` names the file")
    elif not sharding.missing_launch(draft, named, text(named) or ""):
        draft.error(
            named,
            "the file does not exist, so the import does not know how weights and states are sharded",
            "`--accelerate FILE` names the file",
        )


def _unset(draft: Draft, entries: Mapping[str, Entry]) -> None:
    """Report an error for each argument whose value contains a shell variable that is not set. If the argument only
    names the run, a warning is enough, and the spec keeps its default name.
    """
    for key, one in entries.items():
        if key in NAMES:
            draft.note(one, f"the name contains {one.unset}, which the script does not set")
            draft.warn(
                one, f"the name contains {one.unset}, which the script does not set; the spec uses the default name"
            )
        else:
            draft.error(one, *not_set(one.unset))


def _factory(line: Line, environment: list[Word], file: str, overrides: Overrides, launch: Entries | None,
             zero: Entries | None) -> Draft:  # fmt: skip
    rest, named, table = list(line.rest), line.options.get("config_file"), None
    if rest and rest[0].text.endswith((".yaml", ".yml", ".json")):
        word = rest.pop(0)
        table = _file(Entry("config", word.text, file, word.line), overrides)
    if named is not None and launch is None:
        launch = _file(named, overrides)
    variables = [Entry(f"${name}", value, file, word.line, value) for word in environment
            for name, _, value in [word.text.partition("=")]]  # fmt: skip
    alone = {"nproc_per_node": Entry("python", 1, file, 0)} if line.launcher == "python" else {}
    draft = llamafactory_command.factory(
        line.program, line.arguments, rest, {**line.options, **alone}, variables, file, overrides, table, launch, zero
    )
    for word in environment:
        _environment(draft, word, file)
    return draft


def _environment(draft: Draft, word: Word, file: str) -> None:
    name, _, value = word.text.partition("=")
    entry = Entry(f"${name}", value, file, word.line, value)
    if name in ENVIRONMENT:
        draft.mark(entry, "mapped", ENVIRONMENT[name])
    elif (file, entry.key) not in draft.outcomes:
        draft.note(entry, "the environment of the launch")


def _file(entry: Entry, overrides: Overrides, option: str = "") -> dict[str, Entry]:
    """Read a YAML or JSON file that an argument names. Raises Unreadable if it does not exist, with the option `option`
    to pass instead.
    """
    name = text(entry) or ""
    data = overrides.read(name)
    if data is None:
        raise Unreadable(f"`{name[:80]}` does not exist{option and f'; `{option} FILE` names it'}", entry.line)
    return table.read(data.decode("utf-8-sig", "replace"), name)


def _method(program: str) -> str | None:
    """The training method that the name of the program contains: dpo for `trl dpo` and `dpo.py`. None if the name
    contains none.
    """
    words = (
        program.lower()
        .replace(".py", "")
        .replace("/", " ")
        .replace("_", " ")
        .replace(".", " ")
        .replace("-", " ")
        .split()
    )
    return next((one for one in reversed(words) if one in METHODS), "reward" if "rm" in words else None)
