"""Import a command that starts a Python script of the repository. The script is interpreted with the command's
arguments.
"""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.command import programs
from xpc.compiler.importing.command.launcher import launcher
from xpc.compiler.importing.command.line import CUT, Line
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import DEFAULT_GPU, Launch, Machines, Overrides
from xpc.compiler.importing.python.interpreter.functions import TRAINERS, is_library
from xpc.compiler.importing.python.interpreter.machine import PRESENT
from xpc.compiler.importing.text.entries import (
    CLASSIFIER,
    NO_TRAINER,
    OTHER_HEAD,
    OWN_METHOD,
    Entries,
    Entry,
    Unreadable,
    not_set,
    plain,
)
from xpc.compiler.importing.trl import defaults
from xpc.compiler.importing.trl.reader import only_names
from xpc.compiler.importing.trl.trainer import simple
from xpc.compiler.language.methods import METHODS
from xpc.grammar.record import evolve, field, record

PROCESSES = ("nproc_per_node", "num_gpus", "num_processes")
"""Options of torchrun, deepspeed and accelerate launch that state the number of processes on a node. `num_processes`
counts the processes of all nodes.
"""
GUESSED = re.compile(r"^(?:train_dataset|load_dataset|dataset)\b|^model\b")
"""Matches the keys of errors about a script's data or model that cannot be read from its source."""
WHOLE = re.compile(r"[0-9]{1,6}")
ADAPTER = re.compile(r"resume_adapter|adapter_(?:path|dir|name_or_path)|lora_(?:path|weights|dir|ckpt)")
"""Matches names of arguments that name an existing adapter to load, such as `--lora_weights`."""
MOST = 8
"""The largest number of warnings about what a script changes beyond its arguments."""
ROWS = re.compile(r"rows\.|dataset|train_dataset|data_collator|load_")
"""Matches the key of an error about the data. Such errors are reported before other errors."""
CLASSES = re.compile(r"(?:Hf|H4)ArgumentParser|TrlParser")
"""Matches parsers that fill TRL's configuration classes, so that a script's arguments have TRL's names."""


@record
class Script:
    """The Python script that a command launches.

    - `draft`: the draft of the spec, or None if the script cannot be read
    - `by_names`: whether the arguments have TRL's names, because the script fills TRL's classes with them
    - `trainer`: the script's own trainer class, if it uses no trainer of TRL or transformers
    - `declared`: the defaults of the script's own classes
    - `unread`: why the import does not read a script in the repository
    """

    draft: Draft | None = None
    by_names: bool = True
    trainer: Entry | None = None
    declared: Entries = field(factory=dict)
    unread: str = ""


def imported(line: Line, entries: Entries, overrides: Overrides) -> Script:
    """Import the script that a command launches. `entries` are the command's arguments and the keys of its
    configuration file. Raises Unreadable if the script does not train.
    """
    from xpc.compiler.importing.python.reader import python

    program, text = programs.found(line.program, overrides)
    if not program or any(one.text.startswith("-") for one in line.rest):
        return Script()
    by_names = bool(CLASSES.search(text)) or not re.search(r"add_argument\(|Trainer\(", text)
    launch = _launch(line, entries, overrides)
    try:
        draft = python(text, program, _started(line, program, launch, overrides))
    except Unreadable as error:
        if error.kind and not _may_train(error.kind, text):
            location = f"{program}:{error.line}" if error.line else program
            raise Unreadable(f"`{location}`: {error}", kind=error.kind) from error
        trainer = _own_trainer(text, program) if error.kind in (NO_TRAINER, CLASSIFIER) else None
        why = f"`{program}` cannot be imported, so the spec has only what the arguments state: {error}"
        own_loss = trainer is not None and error.kind == NO_TRAINER
        return Script(None, by_names, trainer, launch.declared, "" if own_loss else why)
    if program != line.program and line.program.endswith(".py"):
        whose = "of another machine" if line.program.startswith(("/", "~")) else "that is not here"
        draft.warn(None, f"`{line.program}` is a path {whose}: the import reads `{program}` instead")
    draft.messages = [one for one in draft.messages if not one.text.startswith("`command line`")]
    explained = _report_variables(draft, line)
    # a script that reads a positional word reads the configuration file itself, as in `python train.py sft.yaml`
    named = {"config"} if any(str(n) in launch.used for n in range(1, len(line.rest) + 1)) else set()
    _report_words(draft, line, launch.used)
    for key, one in entries.items():
        if not draft.handled(one) and key not in explained:
            _report_argument(draft, line, key, one, launch.used | named)
    return Script(draft, by_names, None, launch.declared)


def _launch(line: Line, entries: Entries, overrides: Overrides) -> Launch:
    """What the Python importer needs of the command: the script's arguments, and a function that reads the launcher's
    options.
    """

    def options(made: Draft, machines: Machines) -> Entries | None:
        if line.launcher == "python":
            machines.each = 1
        return launcher(made, line, machines, overrides.accelerate)

    return Launch(entries, set(), options)


def _started(line: Line, program: str, launch: Launch, overrides: Overrides) -> Overrides:
    """The options with which the Python importer reads the script. They include the command's arguments, by name and by
    position, and the number of GPUs on which the command runs.
    """
    given = {key: _text(one) for key, one in line.arguments.items() if not one.unset}
    given |= {str(n): one.text for n, one in enumerate(line.rest, 1)}
    # `--set 1=x` sets an argument of the shell script, not of the program that it starts
    given |= {key: one for key, one in overrides.sets.items() if not key.isdecimal()}
    hardware = overrides.hardware
    if hardware is None and (count := _processes(line)) > 1:
        hardware = f"{count} x {DEFAULT_GPU}"
    near = overrides.below(posixpath.dirname(program))
    # `pick` has already selected the command, and selects no trainer in the script
    return evolve(near, sets=given, hardware=hardware, launch=launch, pick=None)


def _processes(line: Line) -> int:
    """The number of processes on a node that the launcher's options state; 0 if they state none."""
    key = next((one for one in PROCESSES if one in line.options), "")
    count, nodes = (_integer(line, one) for one in (key, "num_machines"))
    # accelerate's `--num_processes` counts the processes of all nodes
    return count // nodes if key == "num_processes" and nodes and count % nodes == 0 else count


def _integer(line: Line, key: str) -> int:
    value = plain(line.options[key]) if key in line.options else None
    return int(value) if isinstance(value, int | str) and WHOLE.fullmatch(str(value)) else 0


NOT_GIVEN = re.compile(
    r"the script takes `--([\w-]+)` from its command line, without a default: `--set [^`]*` gives it"
)


def _report_variables(draft: Draft, line: Line) -> set[str]:
    """If an error is about a required argument whose value is an unset shell variable (`--model $1`), make it name the
    variable. Returns the keys of these arguments.
    """
    unset = {key: one.unset for key, one in line.arguments.items() if one.unset}
    found: set[str] = set()
    for n, one in enumerate(draft.messages):
        given = NOT_GIVEN.search(one.why) if one.severity == "error" else None
        key = given[1].replace("-", "_") if given is not None else ""
        if given is not None and key in unset:
            why, help_ = not_set(unset[key])
            draft.messages[n] = evolve(one, why=one.why.replace(given[0], why), text=one.text.replace(given[0], why),
                                       help=help_)  # fmt: skip
            found.add(key)
    return found


def _report_words(draft: Draft, line: Line, used: set[str]) -> None:
    """Report an error for each positional word that the script does not read, except names of files."""
    if line.cut is not None:
        draft.error(line.entry(line.cut), *CUT)
        return
    for n, word in enumerate(line.rest, 1):
        if str(n) not in used and not word.text.endswith((".yaml", ".yml", ".json")):
            why = f"`{line.program}` ignores this positional word", "leave it out if it does not change the training"
            draft.error(line.entry(word), *(not_set(word.open) if word.open else why))


def _report_argument(draft: Draft, line: Line, key: str, one: Entry, used: set[str]) -> None:
    """Report how an argument of the command was imported, and an error if the script has no such argument. `used` are
    the names that the script reads.
    """
    if one.unset and only_names(key):
        draft.note(one, f"the name contains {one.unset}, which the script does not set")
    elif one.unset:
        draft.error(one, *not_set(one.unset))
    elif ADAPTER.search(key) and isinstance(one.value, str) and not one.empty and not draft.has("lora.from"):
        draft.error(one, "the script may continue training this adapter; the spec trains a new adapter",
                    "`lora { from = \"FOLDER\" }` continues its training")  # fmt: skip
    elif key in used:
        draft.mark(one, "mapped", f"an argument of `{line.program}`")
    elif one.file != line.file and "config" in used:
        draft.note(one, f"`{line.program}` reads the file itself")
    elif one.file != line.file:
        draft.note(one, f"`{line.program}` declares no such argument")
        draft.warn(one, f"`{line.program}` declares no such argument, so it changes nothing")
    else:
        draft.error(one, f"`{line.program}` has no such argument", "leave it out if it does not change the training")


def of_method(draft: Draft, declared: Entries, entries: Entries) -> dict[str, Entry]:
    """The entries without those defaults of the script's own classes (`declared`) that are settings of other methods:
    an sft script uses its `temperature` in its own code.
    """
    others = {key for key, one in declared.items() if entries.get(key) is one and (row := simple(key)) is not None
              and row.methods and draft.method not in row.methods}  # fmt: skip
    for key in others:
        draft.note(entries[key], f"only the script's own code reads it: {draft.method} has no such setting")
    return {key: one for key, one in entries.items() if key not in others}


def report_unread(draft: Draft, script: Script, line: Line) -> None:
    """Warn that the import does not read a script in the repository. Report an error if the script states values itself
    or has its own trainer class.
    """
    if script.unread and script.by_names:
        draft.warn(None, script.unread)
    elif script.unread:
        draft.error(Entry(line.program, None, line.file, line.at), script.unread)
    if script.trainer is not None:
        why = f"the script trains with a trainer of its own; the spec uses TRL's {draft.method}"
        help_ = "compare the two trainers; if they compute the same, leave out the script's trainer"
        draft.error(script.trainer, why, help_)


def _own_trainer(text: str, program: str) -> Entry | None:
    """The first trainer that a script creates, if its class is defined in the script or in another module of the
    repository; None for a class of TRL or transformers. A class that extends another trainer counts only if it has its
    own loss.
    """
    extends = r"\([^)\n]{0,200}\)" if "def compute_loss(" in text else r"\(\s*(?:object)?\s*\)"
    own = set(re.findall(rf"^class\s+(\w*Trainer)\s*(?:{extends})?\s*:", text, re.M))
    for one in re.finditer(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]{0,2000}\)|[^\n]*)", text, re.M):
        names = set(re.findall(r"\b(\w*Trainer)\b", one[2]))
        own = own - names if is_library(one[1]) else own | names
    found = [one for one in re.finditer(r"\b(\w*Trainer)\(", text) if not text.startswith("class", one.start() - 6)]
    if not found or any(one[1] in TRAINERS and one[1] not in own for one in found):
        return None
    return Entry("trainer", found[0][1], program, text.count("\n", 0, found[0].start()) + 1)


def _may_train(kind: str, text: str) -> bool:
    """Whether a script that the Python importer refused (`kind` is the reason) may still train, for example because
    another module creates its trainer.
    """
    if kind == NO_TRAINER:
        return "Trainer(" in text
    if kind == CLASSIFIER and "RewardTrainer(" in text:
        return True
    return kind in (CLASSIFIER, OTHER_HEAD) and "ForCausalLM" in text


def better(named: Draft, script: Draft | None) -> Draft:
    """Choose between two drafts of the same command: `named`, from the arguments as names of TRL, and `script`, from
    the Python script.

    `script` is chosen if it has no errors; if the models or data differ; or if `named` has at least as many errors and
    is incomplete (it lacks a model or data, or TRL does not know all arguments). Otherwise `named` is chosen, and gets
    the settings that the script's code changes.
    """
    if script is None:
        return named
    own = any(one.own for one in named.messages if one.severity == "error") or bool(named.decisions)
    complete = bool(named.model and named.sources) and not own
    other = script.method not in (named.method, "sft") and rank(script)[0] <= rank(named)[0]
    clean = rank(script) <= min(rank(named), (0, 0))
    if other or clean or _contradicts(named, script) or (not complete and rank(script) <= rank(named)):
        return script
    _add(named, script)
    _warn_of_more(named, script)
    _doubt_data(named, script)
    return named


def _doubt_data(named: Draft, script: Draft) -> None:
    """Report an error if the data argument is a plain word such as `pure_bad` and the import cannot read how the script
    builds its rows: the word is then probably a name that only this script understands.
    """
    unread = next((one.entry for one in script.messages if one.severity == "error" and one.entry is not None
                   and GUESSED.match(one.entry.key) and not one.entry.key.startswith("model")), None)  # fmt: skip
    words = [one.ref for one in named.sources if re.fullmatch(r'"[\w-]+"', one.ref)]
    if unread is not None and words:
        why = f"the import cannot read how the script builds its rows from {words[0]}"
        named.error(Entry("train_dataset", None, unread.file, unread.line), why, "`--data NAME` names the data")
        named.sources = [one for one in named.sources if one.ref not in words]


def _warn_of_more(named: Draft, script: Draft) -> None:
    """Warn about what the script changes beyond its arguments: one warning for each reason, at most MOST warnings,
    those about the data first.
    """
    reasons: dict[str, list[Entry]] = {}
    for one in script.messages:
        if one.severity == "error" and one.entry is not None and one.why == OWN_METHOD[0]:
            named.error(one.entry, *OWN_METHOD)
        elif one.severity == "error" and one.entry is not None and one.entry.file.endswith(".py"):
            reasons.setdefault(one.why, []).append(one.entry)
    listed = sorted(reasons.items(), key=lambda each: not ROWS.match(each[1][0].key))
    for n, (why, entries) in enumerate(listed):
        if n == MOST:
            more = ", ".join(f"`{each[0].key}`" for _, each in listed[n:])
            named.warn(entries[0], f"the script also changes {more} beyond its arguments")
            return
        others = f" (also {', '.join(f'`{each.key}`' for each in entries[1:6])})" if entries[1:] else ""
        named.warn(entries[0], f"the script does more than its arguments state: {why}{others}")


ADDED = (
    "model.chat_template", "batch.", "data.", "optimizer", "schedule", "precision", "memory", "lora", "qlora",
    "method.", "seed",
)  # fmt: skip
"""Beginnings of paths of settings, such as `optimizer.`, that are copied from the script's draft if the script's code
changes its arguments.
"""


def _add(named: Draft, script: Draft) -> None:
    """Copy settings and names of columns from the draft of the code (`script`) to the draft of the arguments (`named`).
    Each copied setting gets a warning.
    """
    _columns(named, script)
    for path, written in script.settings.items():
        before = named.settings.get(path)
        own = written.entry is not None and written.entry.file.endswith(".py")
        if (
            own
            and path.startswith(ADDED)
            and path != "method.rewards"
            and (before is None or before.text != written.text)
        ):
            named.settings[path] = written
            named.files.update({name: data for name, data in script.files.items() if f'"{name}"' in written.text})
            named.warn(written.entry, f"the script sets it, and the spec has its value: {path} = {written.text}")
            # up to TRL 0.18, there is only one strategy of packing, which a script does not state
            how = script.settings.get(f"{path}.strategy") if path == "batch.packing" else None
            if how is not None:
                named.settings.setdefault(f"{path}.strategy", how)
            elif path == "batch.packing" and written.text == "true" and script.trl:
                defaults.packing(named, script.trl)
            # the script evaluates on its held-out rows, not on the split that its arguments name
            if path == "data.holdout":
                named.settings.pop("eval.split", None)


def _columns(named: Draft, script: Draft) -> None:
    """Copy the names of the columns that the script reads to each dataset whose columns the arguments do not name."""
    columns = {_without_dot(one.ref): one.columns for one in script.sources}
    named.sources = [
        evolve(one, columns=one.columns or columns.get(_without_dot(one.ref), ())) for one in named.sources
    ]


def _contradicts(named: Draft, script: Draft) -> bool:
    """Whether the draft of the script's code (`script`) and the draft of the arguments (`named`) have different models
    or datasets.
    """
    if any(one.entry is not None and GUESSED.search(one.entry.key) for one in script.messages
           if one.severity == "error"):  # fmt: skip
        return False  # the model or data in `script` is uncertain, so a difference proves nothing
    other = named.model and script.model and _without_dot(named.model) != _without_dot(script.model)
    rows = [_without_dot(one.ref).partition("[")[0].partition(":")[0] for one in script.sources]
    stated = [_without_dot(one.ref).partition("[")[0].partition(":")[0] for one in named.sources]
    return bool(other or (rows and stated and not set(rows) & set(stated)))


def _without_dot(name: str) -> str:
    """A path without a leading `./`, because `./data/a.jsonl` and `data/a.jsonl` are the same file."""
    return name.strip('"').removeprefix("./")


def rank(one: Draft) -> tuple[int, int]:
    """A sort key by which the most complete draft is first: how many of model, data and (if the method needs them)
    rewards are missing, and the number of errors and decisions.
    """
    errors = sum(each.severity == "error" for each in one.messages)
    unrewarded = METHODS[one.method].grouped and not one.has("method.rewards")
    return (not one.model) + (not one.sources) + bool(unrewarded), errors + len(one.decisions)


def _text(one: Entry) -> str:
    """An argument as a string. Several values are joined by spaces, and a flag without a value becomes PRESENT."""
    value = plain(one)
    if value is True:
        return PRESENT
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
