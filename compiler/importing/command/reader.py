"""Convert a training command to a draft of the spec: its program, arguments, environment variables and named files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from xpc.compiler.importing.command import fastchat, own_script, programs, search, surroundings, usage
from xpc.compiler.importing.command.launcher import launcher
from xpc.compiler.importing.command.line import CUT, Line, parsed
from xpc.compiler.importing.command.search import chosen, training_commands
from xpc.compiler.importing.draft import Draft, SettingText
from xpc.compiler.importing.llamafactory import command as llamafactory_command
from xpc.compiler.importing.overrides import Machines, Overrides, native
from xpc.compiler.importing.python.interpreter.parsed_classes import argument_names
from xpc.compiler.importing.script_keys import script_keys
from xpc.compiler.importing.source_file import SourceFile
from xpc.compiler.importing.text import table
from xpc.compiler.importing.text.entries import Entries, Entry, Unreadable, not_set, shown, text
from xpc.compiler.importing.text.shell import Call, Word, calls
from xpc.compiler.importing.trl import handbook, own_names
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import Stack
from xpc.grammar.record import evolve, record

ENVIRONMENT = {
    "WANDB_PROJECT": "wandb_project", "MLFLOW_EXPERIMENT_NAME": "mlflow_experiment_name",
    "SWANLAB_PROJECT": "swanlab_project", "CLEARML_PROJECT": "clearml_project", "CLEARML_TASK": "clearml_task",
}  # fmt: skip
NAMING = ("save", "track.name", "track.project", "save.hub.name")
"""Settings that only name a run. A sweep omits them, because xpc names the members of a sweep."""
PROGRAM = re.compile(r"\$\{?(\w+)\}?(?:\.py)?$")
"""Matches a program that consists of a variable without a value, such as `$1` in `accelerate launch $1`."""
FILES = ("config", "config_file", "deepspeed", "deepspeed_config", "fsdp_config")
"""Arguments and launcher options whose value is the path of a file with settings."""


def command(source: SourceFile, overrides: Overrides) -> Draft:
    """Convert a training command of a shell script to a draft of the spec; the values of a `for` loop become a sweep.
    Raises Unreadable if the script has no training command, or several without `--pick`.
    """
    loops: dict[str, tuple[str, ...]] = {}
    cluster = {**surroundings.slurm(source.text), **surroundings.cards(overrides.hardware)}
    overrides = evolve(overrides, sets={**cluster, **overrides.sets})
    at, training = chosen(source.text, overrides, loops)
    draft = _converted(training, source, overrides)
    numbers = usage.unset(draft) if overrides.partial else set()
    taken = usage.stated(numbers, source.text, source.name, overrides) if numbers else {}
    if taken:
        overrides = evolve(overrides, sets={**{key: str(one.value) for key, one in taken.items()}, **overrides.sets})
        at, training = chosen(source.text, overrides, loops)
        draft = _converted(training, source, overrides)
        usage.report(draft, taken, numbers)
    for name, values in loops.items():
        _sweep(draft, name, values, at, source, overrides)
    return draft


def _converted(call: Call, source: SourceFile, overrides: Overrides) -> Draft:
    """Convert one command, with the environment variables that the shell script sets and the files that the script
    writes for it.
    """
    written: dict[str, str] = {}
    moved: dict[str, str] = {}
    changed: dict[str, str] = {}
    commands = calls(source.text, overrides.sets, read=overrides.read, written=written, changed=changed)
    before = commands[: next((n for n, one in enumerate(commands) if surroundings.same(one, call)), len(commands))]
    environment = (*(word for one in before for word in one.environment), *call.environment)
    near = evolve(overrides, read=surroundings.reader(overrides, written, moved)).below(call.folder)
    near = evolve(near, environment=surroundings.variables(call, commands, source.name))
    line = parsed(call, source.name, environment)
    short = programs.short_options(programs.found(line.program, near)[1])
    draft = _draft(parsed(call, source.name, environment, short) if short else line, near)
    for one in (*line.options.values(), *line.arguments.values(), *map(line.entry, line.rest)):
        name = one.key if one.value is None else text(one) or ""
        if name in changed and (one.value is None or one.key in FILES):
            why = f"the script changes this file with `{changed[name]}`, which the import does not execute"
            draft.error(one, why, "make this change in the file, and delete the command")
    for name, found in moved.items():
        draft.warn(None, f"`{name}` is a path of another machine: the import reads `{found}`")
    return draft


def _sweep(draft: Draft, name: str, values: Sequence[str], at: int, source: SourceFile, overrides: Overrides) -> None:
    """Make a sweep of a command in a loop. The command is imported for each value of the loop's variable; a setting
    that differs between these imports becomes a list of the sweep.
    """
    changed: dict[str, list[str]] = {}
    commands: set[tuple[str, ...]] = set()
    for value in values:
        chosen_value = evolve(overrides, sets={**overrides.sets, name: value})
        training = training_commands(source.text, chosen_value)
        if at >= len(training):
            return
        commands.add(tuple(one.text for one in training[at].words))
        member = _converted(training[at], source, chosen_value)
        for path, written in {**member.settings, "model": SettingText(member.model)}.items():
            if path not in NAMING and path not in ("hardware", "nodes"):
                changed.setdefault(path, []).append(written.text)
        if member.sources != draft.sources:
            why = "all runs of a sweep have the same data, but this loop changes the data"
            draft.error(Entry(f"${name}", " ".join(values), source.name, 0), why, f"`--set {name}=VALUE` takes one")
            return
    swept = {path: texts for path, texts in changed.items() if len(texts) == len(values) and len(set(texts)) > 1}
    for path, texts in swept.items():
        draft.sweep[path] = texts
        draft.settings.pop(path, None)
    if len(commands) > 1 and not swept:
        draft.warn(Entry(f"${name}", " ".join(values), source.name, 0),
                   f"the loop starts {len(commands)} runs whose specs have equal settings; the spec is the first run",
                   f"`--set {name}=VALUE` takes another")  # fmt: skip


LIBRARIES = frozenset(("verl", "openrlhf", "swift", "trlx", "nemo_rl", "skyrl_train", "areal", "slime", "xtuner"))
"""Training libraries whose programs, started by `python -m`, no importer reads."""


def _draft(line: Line, overrides: Overrides) -> Draft:
    """Convert a parsed command. The program decides what its arguments are: keys of LLaMA-Factory, arguments that the
    Python script declares, or arguments of TRL.
    """
    if llamafactory_command.is_llamafactory(line.program, line.arguments):
        return _factory(line, overrides)
    path, script_text = programs.found(line.program, overrides)
    if llamafactory_command.STARTED.search(script_text):
        made = _factory(line, overrides)
        made.warn(None, f"`{path}` starts LLaMA-Factory; the import does not read what the script does before")
        return made
    library = re.split(r"[./]", line.program)[0]
    if library in LIBRARIES:
        raise Unreadable(f"`{line.program}` is a program of {library}, which xpc does not import")
    if line.program.startswith("axolotl"):
        named = next((f"`{one.text}`" for one in line.rest), "that file")
        raise Unreadable(f"`{line.program}` reads a file: import {named} instead")
    given = _given(line, overrides)
    overrides = _with_launch_file(line, overrides)
    script = own_script.imported(given.line, given.entries, overrides)
    if script.draft is not None:
        _dropped(script.draft, given.line)
    if script.draft is None or script.by_names:
        draft = own_script.better(_by_names(given, script, overrides), script.draft)
    else:
        draft = script.draft
    for name, variable in line.variables():
        _environment(draft, name, variable)
    return draft


@record
class Given:
    """A parsed command (`line`) with all of its arguments by name (`entries`), and its positional words (`rest`).

    `config` is the argument that names a configuration file, and `inside` are the file's keys, which are also in
    `entries`; both are None without such a file.
    """

    line: Line
    entries: Entries
    config: Entry | None
    inside: Entries | None
    rest: tuple[Word, ...]


def _given(line: Line, overrides: Overrides) -> Given:
    """Read a command's configuration file, which `--config` or the only positional word names."""
    line = evolve(line, arguments={key: _present(one, overrides) for key, one in line.arguments.items()})
    entries, rest = dict(line.arguments), line.rest
    config = entries.pop("config", None)
    empty = tuple(one for one in rest if re.fullmatch(r"\$\{?\d+\}?", one.text))
    named = tuple(one for one in rest if one.text.endswith((".yaml", ".yml", ".json")))
    if config is None and len(named) == 1 and len(rest) == 1 + len(empty):
        config = Entry("config", named[0].text, line.file, named[0].line, unset=named[0].open)
        # the file's name is the only positional word; variables that are not set, such as `$5`, are ignored
        rest, line = (), evolve(line, rest=named, dropped=(*line.dropped, *empty))
    exists = config is not None and overrides.read(text(config) or "") is not None
    inside = _file(config, overrides) if config is not None and exists else None
    entries = {**(inside or {}), **entries}
    if "fsdp_config" in entries:
        entries["fsdp_config"] = _mapping(entries["fsdp_config"], overrides)
    return Given(line, entries, config, inside, rest)


def _present(entry: Entry, overrides: Overrides) -> Entry:
    """Return an argument, without its mark of an unset variable if the file that it names is found nevertheless: in the
    repository by the end of its path (`/home/$USER/repo/sft.json`), or because the script writes it (`$(mktemp)`).
    """
    name = text(entry) or ""
    unknown = entry.unset and (name.endswith((".yaml", ".yml", ".json")) or name.startswith("$("))
    return evolve(entry, unset="") if unknown and overrides.read(name) is not None else entry


def _with_launch_file(line: Line, overrides: Overrides) -> Overrides:
    """Read accelerate's `--config_file`, if the file exists and `--accelerate` does not name another one."""
    named = line.options.get("config_file")
    if named is None or overrides.accelerate is not None or overrides.read(text(named) or "") is None:
        return overrides
    return evolve(overrides, accelerate=_file(named, overrides, "--accelerate"))


def _by_names(given: Given, script: own_script.Script, overrides: Overrides) -> Draft:
    """Convert the arguments of a command whose script is not read, by their names: those of TRL, of FastChat, or common
    names of custom scripts.
    """
    line, entries = given.line, {**script.declared, **given.entries}
    unset = {key: one for key, one in entries.items() if one.unset and key not in ("deepspeed", "deepspeed_config")}
    entries = {key: one for key, one in entries.items() if key not in unset}
    trackers = {ENVIRONMENT[name]: one for name, one in line.variables() if name in ENVIRONMENT}
    entries |= {key: Entry(key, one.value, one.file, one.line) for key, one in trackers.items() if key not in entries}
    method = overrides.method or _method(line.program)
    chat = method in (None, "sft") and fastchat.is_fastchat(line.program, entries, overrides)
    script_text = "" if chat else programs.found(line.program, overrides)[1]
    if script_text and "data_path" in entries:
        entries = {"dataset_path" if key == "data_path" else key: one for key, one in entries.items()}
        method = method or (script.draft.method if script.draft is not None else "sft")
    short = {} if chat else _abbreviated(entries, script_text)
    entries = {short.get(key, key): one for key, one in entries.items()}
    keys = entries
    stated = evolve(overrides, method=method or ("sft" if chat else None))
    if not script_text:
        entries = dict(
            handbook.with_packing(entries, trlyaml.method_of(stated, line.file, entries, entries), overrides)
        )
    fitting = script.draft.fitting if script.draft is not None else ()
    # defaults of the script's own classes do not show the version of TRL: later copies still have Open-R1's classes of
    # 2025
    dating = {key: one for key, one in entries.items() if script.declared.get(key) is not one}
    draft, source = trlyaml.start(stated, entries, line.file, dating, script_text, fitting)
    handbook.report(draft, entries, keys, overrides)
    draft.trl_rewards = not script_text or "trl.rewards" in script_text
    for key, name in short.items():
        draft.warn(entries[name], f"it is an abbreviation of `{name}`, which argparse accepts"
                   if name.startswith(key) else f"the script's own name is read as TRL's `{name}`")  # fmt: skip
    _unset(draft, unset)
    unknown = PROGRAM.search(line.program)
    if unknown is not None:
        draft.error(Entry("program", line.program, line.file, line.at), *not_set(f"${unknown[1]}"))
    own_script.report_unread(draft, script, line)
    _dropped(draft, line)
    _config_file(draft, given)
    entries = dict(own_script.of_method(draft, script.declared, entries))
    if chat:
        entries = fastchat.fastchat(draft, entries, line.program, overrides)
        # FastChat's scripts have the argument `evaluation_strategy`, so they need an old version of transformers
        source, _ = native({"evaluation_strategy"}, draft.method, None)
    _launched(draft, line, entries, overrides, source)
    if line.cut is not None:
        draft.error(line.entry(line.cut), *CUT)
    for word in given.rest if line.cut is None else ():
        why, how = not_set(word.open) if word.open else ("an argument without a key", "")
        if not word.open and search.OVERRIDE.fullmatch(word.text):
            why = "it overrides a Hydra configuration, which the import finds only next to the script"
            how = f"import it in the repository that has `{line.program}`"
        draft.error(line.entry(word), why, how)
    return draft


def _config_file(draft: Draft, given: Given) -> None:
    """Record how the configuration file was imported, and the arguments that are stated twice."""
    config, line = given.config, given.line
    for one in line.again:
        draft.warn(one, f"it occurs twice: the last value, {shown(line.arguments[one.key])}, is used")
    if config is not None and config.unset:
        draft.error(config, *not_set(config.unset))
    elif config is not None and given.inside is None:
        draft.error(config, "the file, which has most settings of the run, does not exist", "import that file itself")
    elif config is not None:
        draft.mark(config, "mapped", "the file was read")
        for key, over in (given.inside or {}).items():
            if key in line.arguments and key != "config":
                draft.note(over, f"line {line.arguments[key].line} of the command overrides it")


def _launched(draft: Draft, line: Line, entries: Entries, overrides: Overrides, source: Stack) -> None:
    """Import the arguments as arguments of TRL, the options of the launcher, and the files that both name."""
    # without a launcher, `python train.py` starts one process
    found = Machines(each=1 if line.launcher == "python" else None)
    overrides = evolve(overrides, accelerate=launcher(draft, line, found, overrides.accelerate))
    for path in ("deepspeed", "deepspeed_config"):
        value = entries[path].value if path in entries else None
        if isinstance(value, str) and value.startswith("$") and overrides.deepspeed is None:
            why = "the script does not set the variable that names the file"
            draft.error(entries[path], why, "`--deepspeed FILE` names it")
    trlyaml.arguments(draft, entries, overrides, source, found)
    visible = overrides.environment.get("CUDA_VISIBLE_DEVICES")
    if line.launcher == "python" and overrides.hardware is None and visible is not None and "," in str(visible.value):
        draft.warn(visible, "one process uses several GPUs; the spec has one GPU, with the global batch of one process",
                   "`--hardware '4 x h100-80gb'` names the GPUs")  # fmt: skip


def _abbreviated(entries: Mapping[str, Entry], script_text: str) -> dict[str, str]:
    """Map common argument names of custom scripts, and abbreviations, to TRL's names: `--learning_r` is
    `--learning_rate`, because no other name begins like this. A name that the script declares is not an abbreviation.
    """
    names = argument_names()
    declared = {key for key, one in script_keys(script_text, "") if one.declared}
    out: dict[str, str] = {}
    for key in entries:
        found = [one for one in names if one.startswith(key)] if len(key) > 3 and key not in (*names, *declared) else []
        name = found[0] if len(found) == 1 else own_names.OWN_NAMES.get(key, "")
        if name and key not in names and name not in entries and name not in out.values():
            out[key] = name
    return out


def _dropped(draft: Draft, line: Line) -> None:
    """Warn about words of the command that the import ignores: unset variables, and words that the script adds only
    under a condition whose outcome is unknown.
    """
    for dropped in line.dropped:
        why = "the script does not set this variable, so the import assumes that it is empty"
        if ":" in dropped.text:
            why = "the import cannot evaluate the condition that adds words here, and leaves them out"
        draft.warn(line.entry(dropped), why)


def _mapping(entry: Entry, overrides: Overrides) -> Entry:
    """Return the argument `fsdp_config`. If its value is the name of a JSON or YAML file, the keys of the file replace
    the value.
    """
    name = text(entry) or ""
    if entry.mapping or not name.endswith((".json", ".yaml")) or overrides.read(name) is None:
        return entry
    inside = {key: evolve(one, key=f"{entry.key}.{key}") for key, one in _file(entry, overrides).items()}
    return Entry(entry.key, inside, entry.file, entry.line)


def _unset(draft: Draft, entries: Mapping[str, Entry]) -> None:
    """Report an error for each argument whose value contains an unset shell variable. If the argument only names the
    run, report a warning, and keep the default name.
    """
    for key, one in entries.items():
        if trlyaml.only_names(key):
            draft.note(one, f"the name contains {one.unset}, which the script does not set")
            draft.warn(
                one, f"the name contains {one.unset}, which the script does not set; the spec uses the default name"
            )
        else:
            draft.error(one, *not_set(one.unset))


def _factory(line: Line, overrides: Overrides) -> Draft:
    """Convert a command of LLaMA-Factory. Its first word may name a configuration file."""
    named, inside = line.options.get("config_file"), None
    if line.rest and line.rest[0].text.endswith((".yaml", ".yml", ".json")):
        word = line.rest[0]
        inside = _file(Entry("config", word.text, line.file, word.line), overrides)
        line = evolve(line, rest=line.rest[1:])
    if named is not None and overrides.accelerate is None:
        overrides = evolve(overrides, accelerate=_file(named, overrides))
    if line.launcher == "python":
        line = evolve(line, options={**line.options, "nproc_per_node": Entry("python", 1, line.file, 0)})
    draft = llamafactory_command.factory(line, inside or {}, overrides)
    for name, variable in line.variables():
        _environment(draft, name, variable)
    return draft


def _environment(draft: Draft, name: str, entry: Entry) -> None:
    """Record how an environment variable, which the shell script sets, was imported."""
    if name in ENVIRONMENT:
        draft.mark(entry, "mapped", ENVIRONMENT[name])
    elif not draft.handled(entry):
        draft.note(entry, "it belongs to the environment of the launch")


def _file(entry: Entry, overrides: Overrides, option: str = "") -> dict[str, Entry]:
    """Read a YAML or JSON file that an argument names. Raises Unreadable if the file does not exist; its message names
    the `option`, such as `--deepspeed`, that names another file.
    """
    name = text(entry) or ""
    data = overrides.read(name)
    if data is None:
        raise Unreadable(f"`{name[:80]}` does not exist{option and f'; `{option} FILE` names it'}", entry.line)
    try:
        return table.read(data.decode("utf-8-sig", "replace"), name)
    except Unreadable as error:
        location = f"{name}:{error.line}" if error.line else name
        raise Unreadable(f"`{location}`: {error}", entry.line) from error


def _method(program: str) -> str | None:
    """The training method in a program's name: dpo for `trl dpo` and `dpo.py`; None if there is none."""
    words = re.split(r"[\s/_.-]+", program.lower().replace(".py", ""))
    return next((one for one in reversed(words) if one in METHODS), "reward" if "rm" in words else None)
