"""The command `xpc import`: convert another tool's configuration or training script to a spec, and write the spec and
its files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

from xpc.compiler import stacks
from xpc.compiler.files.atomic import replace_files
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.streams import standard_input
from xpc.compiler.files.workspace import MAX_DATA, read_file
from xpc.compiler.importing import report, tables
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.emit import Unwritable, emit
from xpc.compiler.importing.nearby import files_near, finder, place, reader
from xpc.compiler.importing.overrides import Overrides, machine
from xpc.compiler.importing.source_file import TYPED, SourceFile, kind_of
from xpc.compiler.importing.text.entries import MAX_SIZE, Unreadable
from xpc.compiler.importing.trl import versions
from xpc.compiler.render import render
from xpc.compiler.render.output import show, show_exact, show_json, show_rendered
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source
from xpc.grammar.tree import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    Check = Callable[[str, str], list[Diagnostic]]
    """A function that returns the errors and warnings of `xpc check` for a spec, given its text and its path."""


def run(options: argparse.Namespace, check: Check) -> int:
    """Run `xpc import` and return its exit status (docs/import.md lists them). `check` is called on the written spec.
    Raises UsageError.
    """
    if (options.file is None) == (options.command_line is None):
        raise UsageError("import takes a FILE, or --command 'torchrun ...'")
    if options.file is not None and os.path.isdir(options.file):
        source = SourceFile(os.path.normpath(options.file), "", os.path.abspath(options.file))
    else:
        source = SourceFile(TYPED, options.command_line, os.getcwd()) if options.file is None else read(options.file)
    overrides = overrides_of(options, source)
    if options.pick == "all":
        return _each(source, options, overrides, check)
    return _one(source, options, overrides, check)


def _each(source: SourceFile, options: argparse.Namespace, overrides: Overrides, check: Check) -> int:
    """Write a spec for each training command of a script: `--pick all -o x.xp` writes `x-1.xp`, `x-2.xp` and so on.
    Raises UsageError.
    """
    from xpc.compiler.importing.command import search

    if options.output in (None, "-") or kind_of(source, options.file is not None) != "command":
        raise UsageError("--pick all takes a script and -o FILE, which becomes FILE-1, FILE-2 ...")
    stem, dot, ending = options.output.rpartition(".")
    try:
        count = search.count(source.text, overrides)
    except Unreadable as error:
        raise UsageError(f"{source.name}: {error}") from error
    worst = 0
    for number in range(1, count + 1):
        options.output = f"{stem if dot else ending}-{number}{dot}{ending if dot else ''}"
        picked = evolve(overrides, stem=f"{overrides.stem}-{number}", pick=number)
        worst = max(worst, _one(source, options, picked, check))
    return worst


def _one(source: SourceFile, options: argparse.Namespace, overrides: Overrides, check: Check) -> int:
    """Import one source: write its spec, or print why no spec can be written. Returns the exit status. Raises
    UsageError.
    """
    from xpc.compiler.importing import families, partial

    try:
        draft = convert(source, options, overrides)
    except Unreadable as error:
        location = f"{source.name}:{error.line}" if error.line else source.name
        raise UsageError(f"{location}: {error}") from error
    if not draft.text:
        families.refuse_images(draft)
    for name in overrides.sets:
        if not _occurs(name, options.texts):
            draft.warn(None, f"`--set {name}` has no effect: the source has no variable and no argument of this name")
    if options.partial and not draft.text:
        partial.apply(draft, overrides)
    try:
        text = draft.text or emit(draft, _origin(source, options))
    except Unwritable as error:
        raise UsageError(f"{source.name}: {error}") from error
    found: list[Diagnostic] = []
    if not draft.wrong:
        write(draft, text, options.output, options.force)
        if _is_complete(draft):
            found = check(text, f"{overrides.stem}.xp" if options.output in (None, "-") else options.output)
    errors = [one for one in found if one.severity == "error"]
    _show(draft, text, options, found, errors)
    if options.partial and (draft.decisions or errors):
        return partial.STATUS
    return int(draft.wrong or bool(errors))


def _is_complete(draft: Draft) -> bool:
    """Whether a spec can be checked. A spec without a model or without data cannot: it is a base for `extends`, or a
    person must complete it.
    """
    return bool(draft.text or (draft.model and draft.sources))


def _show(
    draft: Draft, text: str, options: argparse.Namespace, found: list[Diagnostic], errors: list[Diagnostic]
) -> None:
    """Print the report or the spec of an import, and then the findings of `xpc check` for the spec."""
    from xpc.compiler.importing import partial

    out = options.output
    if options.report == "json":
        show_json(report.as_json(draft, text, out or "-", errors))
    elif not draft.wrong and out in (None, "-"):
        show_exact(text)
    if not draft.decisions or options.report == "text":
        show(report.as_text(draft, options.report == "text"), sys.stderr)
    if draft.wrong:
        show("nothing was written: there are errors", sys.stderr)
    elif draft.decisions:
        show(partial.screen(draft, out), sys.stderr)
    elif out not in (None, "-"):
        warned = f" with {_counted(len(found), 'warning')}" if found else ""
        passes = f", which passes `xpc check`{warned}" if _is_complete(draft) else ", which has no model or no data yet"
        show(f"wrote {out}" + ("" if errors else passes), sys.stderr)
    if errors:
        show(f"`xpc check` finds {_counted(len(errors), 'error')} in the spec:", sys.stderr)
        show_rendered(render(errors, "concise"), sys.stderr)
        target = draft.settings.get("target")
        if target is not None and target.why:
            show(f"the target is {target.text}, because {target.why}; `--target` chooses another", sys.stderr)


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def read(path: str) -> SourceFile:
    """Read the file to import, or standard input for `-`, as UTF-8 text. Raises UsageError."""
    try:
        if path == "-":
            data, name = standard_input(MAX_SIZE), "stdin"
        else:
            # notebooks may be larger, because outputs of cells, which are not imported, are most of their size
            data, name = read_file(path, (64 if path.endswith(".ipynb") else 4) * MAX_SIZE), path
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        path = "standard input" if path == "-" else path
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > MAX_SIZE and not path.endswith(".ipynb"):
        raise UsageError(f"{path} is longer than {MAX_SIZE} characters")
    return SourceFile(name, text, os.path.dirname(os.path.abspath(path)) if path != "-" else os.getcwd())


def overrides_of(options: argparse.Namespace, source: SourceFile) -> Overrides:
    """The command-line options that override values of the imported file, such as `--model`. Raises UsageError."""
    try:
        hardware = None if options.hardware is None else machine(options.hardware)
    except ValueError as error:
        raise UsageError(f"--hardware {options.hardware}: {error}") from error
    if options.target is not None and options.target not in stacks.names():
        raise UsageError(f"--target {options.target}: the targets are {', '.join(stacks.names())}")
    if options.nodes is not None and options.nodes < 1:
        raise UsageError("--nodes takes a whole number above 0")
    version = None
    if options.trl is not None:
        version = versions.find(options.trl)
        if version is None:
            raise UsageError(f"--trl {options.trl}: the versions are {', '.join(versions.numbers())}")
    named = options.output if options.output not in (None, "-") else source.name
    stem = os.path.basename(named).partition(".")[0] or "import"
    read_near = reader(source.folder, options.command_line or "")
    options.texts = [source.text]

    def recorded(name: str) -> bytes | None:
        data = read_near(name)
        if data is not None and options.sets:
            options.texts.append(data.decode("utf-8", "replace"))
        return data

    stem = "".join(c if (c.isalnum() and c.isascii()) or c in "-_." else "-" for c in stem).strip("-") or "import"

    return Overrides(
        stem, options.target, options.method, hardware, options.nodes, _reference(options.model),
        _reference(options.data), options.rewards, options.prompt, version, _sets(options), _pick(options),
        options.partial, place(source.folder, source.name), recorded,
        lambda: files_near(source.folder),
        lambda: files_near(source.folder, r"\.(sh|bash|slurm|sbatch)$"), lambda: files_near(source.folder, r"\.ya?ml$"),
        lambda: files_near(source.folder, r"^requirements.*\.txt$"), finder(source.folder),
    )  # fmt: skip


def _sets(options: argparse.Namespace) -> dict[str, str]:
    """Maps each variable in an option `--set NAME=VALUE` to its value. Raises UsageError."""
    found = dict(one.partition("=")[::2] for one in options.sets)
    if any("=" not in one for one in options.sets):
        raise UsageError("--set takes NAME=VALUE")
    return found


def _occurs(name: str, texts: list[str]) -> bool:
    """Whether a text that an import reads contains `name` of `--set`. Also true for the number of an argument (`1`) or
    a condition (`train.py:31`), which are not names in the text.
    """
    if name.isdecimal() or ":" in name:
        return True
    words = {re.escape(one) for one in (name, name.rpartition(".")[2], name.replace("_", "-"), name.replace("-", "_"))}
    return any(re.search(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", text) for text in texts)


def _pick(options: argparse.Namespace) -> int | None:
    """The number N of `--pick N`; None without the option and for `--pick all`. Raises UsageError."""
    if options.pick in (None, "all"):
        return None
    if not options.pick.isdecimal() or not 0 < int(options.pick) < 1000:
        raise UsageError("--pick takes the number of a training command, or `all`")
    return int(options.pick)


def _reference(name: str | None) -> str | None:
    """Write the value of `--model` or `--data` as in a spec: a legal reference such as `qwen3-8b` is unchanged, and a
    file or any other name gets quotes.
    """
    if name is None:
        return None

    _, problems = parse(Source("import.xp", f"train {name} on {name}\n"))
    return quoted(name) if problems or name.endswith(FILES) or os.path.exists(name) else name


FILES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".arrow")
"""Endings of data files. Such a path gets quotes, because `data/rows.jsonl` without quotes is a dataset on the hub."""


def convert(source: SourceFile, options: argparse.Namespace, overrides: Overrides) -> Draft:
    """Convert a file, command line or bundle folder of any supported kind to a draft of the spec. Raises Unreadable and
    UsageError.
    """
    if options.file is not None and os.path.isdir(options.file):
        from xpc.compiler.importing.bundle import bundle

        return bundle(source.name, lambda name: _inside(source.folder, name), overrides)
    accelerate = None if options.accelerate is None else read(options.accelerate).table()
    deepspeed = None if options.deepspeed is None else read(options.deepspeed).table()
    overrides = evolve(overrides, accelerate=accelerate, deepspeed=deepspeed)
    kind = options.kind or kind_of(source, options.file is not None)
    if kind == "python":
        from xpc.compiler.importing.python.reader import python

        return python(source.text, source.name, overrides)
    if kind == "command":
        from xpc.compiler.importing.command.reader import command

        return command(source, overrides)
    draft = tables.converted(source, kind, overrides)
    if kind != "trl" or options.kind is not None:
        return draft
    from xpc.compiler.importing.command.config_launch import launched

    return launched(draft, source, overrides)


def _inside(folder: str, name: str) -> bytes | None:
    """The contents of a file in a bundle's folder; None if it does not exist or lies outside the folder."""
    path = os.path.realpath(os.path.join(folder, name))
    if os.path.commonpath([path, os.path.realpath(folder)]) != os.path.realpath(folder) or not os.path.isfile(path):
        return None
    # no bundle contains a larger file, because the compiler copies none
    if os.path.getsize(path) > MAX_DATA:
        raise Unreadable(f"`{name[:80]}` is larger than {MAX_DATA // 2**20} MiB")
    try:
        return read_file(path, MAX_DATA)
    except OSError:
        return None


def write(draft: Draft, text: str, out: str | None, force: bool) -> None:
    """Write the spec, and the files that it names, to one folder. A file that exists is replaced only with `--force`.
    Raises UsageError.
    """
    to_file = out not in (None, "-")
    folder = os.path.dirname(os.path.abspath(str(out))) if to_file else os.getcwd()
    files = {os.path.join(folder, name): data for name, data in draft.files.items()}
    if to_file:
        files[str(out)] = text.encode()
    try:
        for path, data in files.items():
            if os.path.exists(path) and not os.path.isfile(path):
                raise UsageError(f"{path} is not a regular file, and is not replaced")
            if os.path.lexists(path) and not force and not _holds(path, data):
                raise UsageError(f"{path} exists already: --force replaces it")
        replace_files(files)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}") from error
    for name in draft.files:
        show(f"wrote {os.path.relpath(os.path.join(folder, name))}", sys.stderr)


def _holds(path: str, data: bytes) -> bool:
    with open(path, "rb") as handle:
        return handle.read(len(data) + 1) == data


def _origin(source: SourceFile, options: argparse.Namespace) -> str:
    named = [os.path.basename(one) for one in (source.name, options.accelerate, options.deepspeed) if one]
    return ", ".join("a command line" if one == TYPED else one for one in named) + ", by `xpc import`."
