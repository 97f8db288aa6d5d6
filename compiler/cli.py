"""The command line. Exit status: 0 no errors (warnings and notes allowed), 1 errors in the spec, 2 wrong usage.

Files are read and written only here and in `files/`. A module that only some commands need is imported in a function,
because start-up time matters.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import SimpleNamespace

from xpc.compiler import __version__
from xpc.compiler.commands import APART, COMMANDS, LATER, OTHER_WORDS
from xpc.compiler.files.inputs import SpecError, UsageError, located, located_silences, open_spec, read_spec
from xpc.compiler.files.streams import Guarded, Unwritable
from xpc.compiler.render import FORMATS, render
from xpc.compiler.render.output import colored, show, show_exact, show_json, show_rendered
from xpc.compiler.render.visible import visible
from xpc.grammar.nearest import nearest
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import TextIO, TypeAlias

    from xpc.compiler.files.workspace import Workspace
    from xpc.compiler.pipeline import Checked
    from xpc.grammar.diagnostic import Diagnostic, Silenced

    Options: TypeAlias = argparse.Namespace | SimpleNamespace

TEXTS = ("full", "concise")
"""Values of `--format` whose output is for people. With any other value, the output is for a program: standard output
contains only the findings.
"""
EXACT = ("completion", "fmt", "lsp", "schema")
"""Commands whose output is for programs, and is printed without style or summary. If only some options of a command
have such an output, the command's module has a function `is_exact(options)`.
"""
DENIED = "warnings are denied (--deny warnings)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    gc.disable()  # a short process does not need garbage collection, which is slow
    arguments = list(sys.argv[1:] if argv is None else argv)
    with Guarded():
        try:
            try:
                status = _run(arguments)
            except SystemExit as left:  # argparse printed help or an error
                status = int(left.code or 0)
            sys.stdout.flush()
            gc.freeze()  # skip the garbage collection at exit
            return status
        except (SpecError, UsageError, Unwritable) as error:
            if str(error):
                _print_line(f"xpc: {error}", sys.stderr)
            return 1 if isinstance(error, SpecError) else 2
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if os.environ.get("XPC_DEBUG"):
                raise
            _print_line(
                f"xpc: this input broke the compiler ({type(error).__name__}: {error}); XPC_DEBUG=1 shows where. "
                "Please report it with the spec",
                sys.stderr,
            )
            return 2


def _print_line(line: str, to: TextIO) -> None:
    """Print a line that may contain file names. Escape sequences in it are escaped, as in diagnostics."""
    show_rendered(visible(line) + "\n", to)


def _run(arguments: list[str]) -> int:
    if not arguments:
        show(_parser("").format_help(), sys.stderr)
        return 2
    if arguments[:1] == ["import"]:
        return _import(arguments[1:])
    if arguments[0] in APART:
        return _run_module(arguments[0], arguments[1:])
    if not arguments[0].startswith("-") and arguments[0] not in (*COMMANDS, *LATER):
        near = OTHER_WORDS.get(arguments[0]) or nearest(arguments[0], COMMANDS)
        suggestion = f": did you mean `xpc {near}`?" if near else ";"
        raise UsageError(f"there is no command `{arguments[0]}`{suggestion} the commands are {', '.join(COMMANDS)}")
    options = _options(arguments)
    if options.command in LATER:
        raise UsageError(f"`{options.command}` is reserved for a later version; this version has {', '.join(COMMANDS)}")
    return {"check": _check, "compile": _compile, "explain": _explain}[options.command](options)


def _explain(options: Options) -> int:
    if options.what is None:
        raise UsageError(
            "explain what? A code (`xpc explain XP301`), a setting (`xpc explain gbs`), a spec, or one of its settings "
            "(`xpc explain run.xp:gbs`); `xpc list codes` and `xpc list settings` print them"
        )
    from xpc.compiler.explain.texts import explain

    text = explain(options.what)
    if text is None:
        from xpc.compiler.explain.names import unknown

        raise UsageError(unknown(options.what))
    show(text)  # `show` escapes control characters, which paths and values of a spec may contain
    return 0


BEGIN = (
    "To begin: `xpc new run.xp` writes a spec, `xpc check run.xp` checks it, `xpc compile run.xp` writes its bundle."
)
PLAIN = {"allow_oom": False, "format": "full", "deny": None}
"""Default options of `check` and `compile`."""
ASSUMED = "XP190"
UNSET = "the spec states no ", "the spec has no "
"""The beginnings of notes about a value that is assumed. The name of the setting follows, up to a colon or a comma."""


def _options(arguments: list[str]) -> Options:
    """Parse the options of a command line. The most frequent command, `check FILE...` without options, is parsed
    without argparse, which is slow to import.
    """
    if arguments[:1] == ["check"] and arguments[1:] and not any(one.startswith("-") for one in arguments):
        return SimpleNamespace(command="check", files=arguments[1:], **PLAIN)
    return _parser(arguments[0] if arguments else "").parse_args(arguments)


def _parser(first: str) -> argparse.ArgumentParser:
    """Make the parser for a command line whose first word is `first`. If `first` is the name of a command, the parser
    knows only this command; otherwise it knows all commands.
    """
    from xpc.compiler.render.argument_parser import ArgumentParser

    parser = ArgumentParser(
        "xpc", description="Compile training experiments: check a spec, write its bundle.", epilog=BEGIN
    )
    parser.add_argument("--version", action="version", version=f"xpc {__version__}")
    commands = parser.add_subparsers(prog="xpc", dest="command", required=True, metavar="COMMAND")
    for name in [first] if first in COMMANDS else COMMANDS:
        one = commands.add_parser(name, help=COMMANDS[name], add_help=name in ("check", "compile", "explain"))
        add = one.add_argument
        if name == "check":
            add("files", nargs="+", metavar="FILE", help="a spec, or - for standard input")
        if name == "compile":
            add("file", metavar="FILE", help="a spec, or - for standard input")
            add("-o", "--output", metavar="DIR", help="the folder of the bundle (default: ./STEM.bundle for STEM.xp)")
            add("--force", action="store_true", help="move an existing file or folder aside")
            add("--locked", action="store_true", help="fail if SPEC.lock is missing, incomplete or outdated")
        if name in ("check", "compile"):
            add("--allow-oom", action="store_true", help="a run that does not fit its GPUs is a note, not an error")
            add("--format", choices=FORMATS, help="output format of the diagnostics (default: full)")
            add("--deny", choices=("warnings",), help="exit with 1 if there are warnings")
            one.set_defaults(**PLAIN)
        if name == "explain":
            what = "a code (XP301), a setting (gbs), a spec, or one setting of a spec (run.xp:gbs)"
            add("what", nargs="?", metavar="CODE|SETTING|FILE|FILE:SETTING", help=what)
    for name in LATER:
        commands.add_parser(name, prefix_chars="\0").add_argument("rest", nargs="*")
    return parser


def _check(options: Options) -> int:
    from xpc.compiler.files.file_memory import user_memory
    from xpc.compiler.pipeline import check_text

    found: list[Diagnostic] = []
    silenced: list[Silenced] = []
    wrong = denied = unread = False
    for path in options.files:
        try:
            data, name, workspace = read_spec(path)
        except UsageError as error:
            _print_line(f"xpc: {error}", sys.stderr)
            unread = True
            continue
        allow_oom = workspace.allow_oom or options.allow_oom
        workspace = evolve(workspace, memory=user_memory(), copies=False, allow_oom=allow_oom)
        checked = check_text(data, name, workspace)
        found += located([*checked.problems, *_of_preview(checked, workspace)], path)
        silenced += located_silences(checked.silenced, path)
        wrong = wrong or checked.spec is None
        denied = denied or is_denied(options, checked.problems)
    show_rendered(render(found, options.format, color=colored(), silenced=silenced))
    if denied and options.format in TEXTS:
        show(DENIED)
    return 2 if unread else int(wrong or denied)


def _of_preview(checked: Checked, workspace: Workspace) -> list[Diagnostic]:
    """Return a note with the token counts that an earlier `xpc preview --rows` stored for this spec's rows. If no
    counts are stored, return a note about rows that `check` does not read and a preview does (Parquet, the hub). The
    notes depend on this machine, so no bundle contains them.
    """
    from xpc.compiler.files.private_folder import private_folder

    spec, folder = checked.spec, private_folder("previews")
    if spec is None:
        return []
    if folder is not None and os.path.isdir(folder):
        from xpc.compiler.data import preview_counts  # imported late, because few specs have been previewed

        if found := preview_counts.note(spec, workspace):
            return found
    if all(one.content is not None and not (one.path or "").lower().endswith(".parquet") for one in spec.data):
        return []
    from xpc.compiler.data import unread_rows  # imported late, because `check` reads all rows of most specs

    return unread_rows.note(spec)


def _compile(options: Options) -> int:
    from xpc.compiler.files.bundle import BundleError, write
    from xpc.compiler.files.file_memory import user_memory
    from xpc.compiler.pipeline import compile_text

    if options.output == "":
        raise UsageError("-o takes the folder of the bundle, not an empty text")
    data, name, workspace = read_spec(options.file)
    workspace = evolve(workspace, memory=user_memory(), allow_oom=workspace.allow_oom or options.allow_oom)
    files, checked = compile_text(data, name, workspace)
    silenced = located_silences(checked.silenced, options.file)
    problems = [*checked.problems, *_of_preview(checked, workspace)]
    found = located(_assumed_at_once(problems, options.file) if options.format == "full" else problems, options.file)
    show_rendered(render(found, options.format, color=colored(), silenced=silenced))
    to = sys.stdout if options.format in TEXTS else sys.stderr
    if is_denied(options, checked.problems):
        show(f"{DENIED}, and nothing was written", to)
        return 1
    if files is None:
        return 1
    if options.locked:
        from xpc.compiler.locking.state import refusals

        stale = list(refusals(checked, workspace, files))
        for sentence in stale:
            _print_line(sentence, to)
        if stale:
            show("nothing was written (--locked)", to)
            return 1
    out = options.output or os.path.join(".", f"{name.removesuffix('.xp')}.bundle")
    try:
        moved = write(files, out, options.force)
    except BundleError as error:
        raise UsageError(str(error)) from error
    if moved is not None:
        _print_line(f"moved the old bundle to {moved}", to)
    for line in _written(checked, out, workspace.root):
        _print_line(line, to)
    return 0


def _assumed_at_once(found: list[Diagnostic], path: str) -> list[Diagnostic]:
    """Join the notes about assumed values to one note that names the settings, because `xpc check` prints each value
    with its reason.
    """
    unset = [one for one in found if one.code == ASSUMED and one.message.startswith(UNSET)]
    if len(unset) < 2:
        return found
    heads = (one.message.partition(":")[0].partition(",")[0].partition(" no ")[2] for one in unset)
    message = f"the spec states no {', '.join(dict.fromkeys(heads))}"
    joined = evolve(unset[0], message=message, help=f"`xpc check {path}` prints each value with its reason")
    return [*(one for one in found if one not in unset), joined]


def _written(checked: Checked, out: str, root: str) -> Iterator[str]:
    """Yield the lines to print about a bundle that was written to `out`: the files that the run needs and the bundle
    lacks, and the commands that launch the bundle. `root` is the spec's folder.
    """
    from xpc.compiler.engines.engine import engine
    from xpc.compiler.resolve.weights import local_models

    many = f", {len(checked.members):,} members" if checked.members else ""
    spec = checked.members[0].spec if many else checked.spec
    assert spec is not None  # a spec that compiled has no errors
    if spec.images:
        from xpc.compiler.resolve.image_digests import without_digests

        yield from without_digests(spec)
    away = [*local_models(spec), *(f"{one} with its images" for one in spec.images)]
    away = [one for one in away if not os.path.isabs(one)]
    if away and os.path.dirname(os.path.realpath(out)) != os.path.realpath(root):
        found_by = f"XPC_DATA_ROOT={os.path.relpath(root)} lets the launch and `xpc verify` find it"
        yield f"{away[0]} is not next to the bundle: {found_by}"
    yield f"wrote {out}{many}; launch {'them' if many else 'it'} with"
    commands = engine(spec).sweep_commands(spec, out) if many else engine(spec).commands(spec, out)
    yield from (f"  {line}" for line in commands)


def _import(arguments: list[str]) -> int:
    from xpc.compiler.importing import cli as edge
    from xpc.compiler.importing import options

    return edge.run(options.parse(arguments), _problems_of)


def _problems_of(text: str, path: str) -> list[Diagnostic]:
    """The errors and warnings that `xpc check` reports for the text `text`. Relative paths in the text are resolved as
    if the text were the file `path`.
    """
    from xpc.compiler.files.file_memory import user_memory
    from xpc.compiler.pipeline import check_text

    data, name, workspace = open_spec(os.path.abspath(path), text.encode())
    checked = check_text(data, name, evolve(workspace, memory=user_memory(), copies=False))
    return located([one for one in checked.problems if one.severity != "note"], path)


def _run_module(command: str, arguments: list[str]) -> int:
    """Run a command whose code is in its own module, such as `xpc lock`. Returns the exit status."""
    module = import_module(APART[command])
    options = module.parse(arguments)
    text, status = module.run(options)
    if getattr(options, "format", None) == "json":
        show_json(text)
    elif command in EXACT and getattr(module, "is_exact", lambda _: True)(options):
        show_exact(text)
    else:
        show(text)
    return int(status)


def is_denied(options: Options, problems: Sequence[Diagnostic]) -> bool:
    """Whether there are warnings and `--deny warnings` treats them as errors."""
    return options.deny is not None and any(one.severity == "warning" for one in problems)


if __name__ == "__main__":
    # this file, run as a program, is a second copy of the module `cli`; call `main` of the first copy
    from xpc.compiler.cli import main as entry

    sys.exit(entry())
