"""Import a YAML file through a documented command that starts a training with it, such as `python train.py --config
configs/sft.yaml` in a shell script, README or docstring. The Python script in the command says what the keys mean.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from contextlib import suppress

from xpc.compiler.importing.command import programs
from xpc.compiler.importing.command.line import parsed
from xpc.compiler.importing.command.own_script import CLASSES, rank
from xpc.compiler.importing.command.reader import command
from xpc.compiler.importing.command.search import is_training, training_commands
from xpc.compiler.importing.documented import commands
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides, no_scripts
from xpc.compiler.importing.python.interpreter.functions import TRAINERS
from xpc.compiler.importing.source_file import TYPED, SourceFile
from xpc.compiler.importing.text.entries import OWN_METHOD, Entry, Unreadable
from xpc.compiler.importing.text.shell import Call, Word
from xpc.grammar.record import evolve, record

MOST_READ = 400
"""The largest number of Python files that are searched for a method's trainer."""


@record
class Launch:
    """A command that starts a training with the imported YAML file: the file that contains the command; the command's
    number (from 1) and line in it; the program; and the names of the further arguments.
    """

    source: SourceFile
    number: int
    line: int
    program: str
    more: tuple[str, ...] = ()


def launched(named: Draft, source: SourceFile, overrides: Overrides) -> Draft:
    """Choose between two drafts: `named`, made from the file's keys as names of TRL, and the draft of a command that
    starts a training with the file. The command's draft is chosen if it does not lack more of the model and the data.

    A command with further arguments is considered only with `--partial`, and only if `named` is incomplete or has
    errors; the user must decide about these arguments.
    """
    unclear = rank(named) > (0, 0)
    unread = ""
    for one in _launches(named, source, overrides, unclear):
        if one.more and not (overrides.partial and unclear):
            continue
        try:
            draft = command(one.source, evolve(overrides, pick=one.number))
        except Unreadable as error:
            if "Trainer(" in programs.found(one.program, overrides)[1]:
                unread = unread or f"`{one.program}` reads this file, but the program cannot be imported: {error}"
            continue
        if rank(draft)[0] <= rank(named)[0]:
            how = ", the only script with the trainer of its method" if one.source.name == TYPED else ""
            draft.warn(None, f"the file is read as `{one.program}` reads it{how}")
            if one.more:
                draft.error(Entry(one.program, " ".join(f"--{key}" for key in one.more), one.source.name, one.line),
                            "this documented command has arguments that are not in the imported file; the spec has "
                            "their values", "`xpc import --command LINE` imports another command")  # fmt: skip
            return draft
        for each in draft.messages:
            if each.entry is not None and each.why == OWN_METHOD[0] and not named.handled(each.entry):
                named.error(each.entry, *OWN_METHOD)
    if unread:
        named.warn(None, unread)
    return named


def _launches(named: Draft, source: SourceFile, overrides: Overrides, unclear: bool) -> Iterator[Launch]:
    """The commands that start a Python file of the repository with the imported file. If there are none and the file's
    keys alone are not enough (`unclear`): `accelerate launch SCRIPT --config FILE` for the only script of the
    repository that has the method's trainer and fills TRL's classes.
    """
    name, found = posixpath.basename(source.name), False
    for other, text in overrides.launches():
        if name in text:
            with suppress(Unreadable):
                for number, call in enumerate(training_commands(text, overrides), 1):
                    made = _launch(call, SourceFile(other, text, source.folder), number, overrides)
                    if made is not None:
                        found = True
                        yield made
    for one in commands(name, overrides.scripts(), evolve(overrides, launches=no_scripts)):
        text = "\n" * (one.line - 1) + shlex.join(one.words)
        words = tuple(Word(word, one.line) for word in one.words)
        made = _launch(Call((), words), SourceFile(one.file, text, source.folder), 1, overrides)
        if made is not None:
            found = True
            yield made
    script = "" if found or not unclear else _only_script(named, source, overrides)
    if script:
        text = shlex.join(("accelerate", "launch", script, "--config", source.name))
        yield Launch(SourceFile(TYPED, text, source.folder), 1, 0, script)


def _launch(call: Call, source: SourceFile, number: int, overrides: Overrides) -> Launch | None:
    """Convert a command to a Launch; None if it starts no Python file of the repository with the imported file."""
    at = next((n for n in range(len(call.words)) if is_training(call.words[n:])), None)
    if at is None:
        return None
    line = parsed(evolve(call, words=call.words[at:]), source.name, ())
    more = tuple(key for key, one in line.arguments.items() if not _is_imported(str(one.value), source, overrides))
    named = len(more) < len(line.arguments) or any(_is_imported(one.text, source, overrides) for one in line.rest)
    exists = programs.found(line.program, overrides)[0]
    return Launch(source, number, line.at, line.program, more) if named and exists else None


def _is_imported(path: str, source: SourceFile, overrides: Overrides) -> bool:
    """Whether a path in a command is the imported file. A name without a folder, such as `sft.yaml`, is relative to the
    folder that contains the command.
    """
    parts = [one for one in path.split("/") if one not in ("", ".", "..")]
    place = overrides.place.split("/")
    if len(parts) == 1 and len(place) > 1 and posixpath.dirname(source.name):
        return False
    count = min(len(parts), len(place))
    return count > 0 and parts[-count:] == place[-count:]


def _only_script(named: Draft, source: SourceFile, overrides: Overrides) -> str:
    """The Python file of the repository that has the method's trainer and fills TRL's classes. Of several, the one that
    has the YAML file's name; "" if there is none.
    """
    trainer = next(f"{name}(".encode() for name, method in TRAINERS.items() if method == named.method)
    found: list[str] = []
    for one in overrides.find("")[:MOST_READ]:
        body = overrides.read(one) or b""
        if trainer in body and CLASSES.search(body.decode("utf-8", "replace")):
            found.append(one)
    stem = posixpath.basename(source.name).rpartition(".")[0]
    found = found if len(found) == 1 else [one for one in found if posixpath.basename(one) == f"{stem}.py"]
    return found[0] if len(found) == 1 else ""
