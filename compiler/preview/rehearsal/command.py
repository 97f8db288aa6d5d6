"""`xpc rehearse SPEC`: before a GPU is used, run a small version of the experiment (its twin) on this CPU, from its
start to its end.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview.process import interpreter
from xpc.compiler.preview.rehearsal import show
from xpc.compiler.preview.rehearsal.small_run import checked_run, rehearse, warm_interpreter
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.output import colored

EPILOG = (
    "The small version trains a small random model of the same family for eight steps. All other settings come from "
    "the spec, and the bundle's launch.sh starts the run. Reward functions are run. xpc sends nothing anywhere, and "
    "all files are deleted at the end unless --keep is set. "
    "Exit status: 0 nothing is wrong, 1 something is, 2 wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc rehearse", description="Run a small version of an experiment to its end, on this CPU.", epilog=EPILOG
    )
    add = parser.add_argument
    add("files", metavar="SPEC", nargs="*", help="a spec; with --ci also folders (default: the repository)")
    add("--rows", metavar="FILE", help="rows for the sources that are not on this machine (default: rows are made)")
    add("--member", metavar="NAME", help="the run of a sweep, by its name or number (default: the first)")
    add("--keep", metavar="DIR", help="keep the small spec, its bundles and its runs in DIR, which must not exist")
    add("--python", metavar="PATH", help="the interpreter that trains (default: this one if it has trl, or $PYTHON)")
    add("--format", choices=("text", "markdown", "json"), default="text", help="output format (default: text)")
    add("--ci", action="store_true", help="rehearse each spec that changed, and print a summary in Markdown")
    add("--base", metavar="COMMIT", help="with --ci: only specs that are affected by changes since this commit")
    options = parser.parse_args(list(arguments))
    single = [name for name in ("rows", "member", "keep") if getattr(options, name) is not None]
    if options.ci and single:
        parser.error(f"--{single[0]} is for one spec, and --ci rehearses several")
    if not options.ci and (len(options.files) != 1 or options.base is not None):
        parser.error("name one spec, or use --ci" if options.base is None else "--base needs --ci")
    return options


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the text to print and the exit status. Raises UsageError and SpecError."""
    if options.ci:
        from xpc.compiler.preview.rehearsal.ci import rehearse_changed

        return rehearse_changed(options.files, options.base, options.python)
    path = options.files[0]
    if path == "-":
        raise UsageError("rehearse needs a spec in a file, because its data and model are searched for next to it")
    if options.keep is not None and os.path.lexists(options.keep):
        raise UsageError(f"{options.keep} exists; name a new folder with --keep")
    spec = checked_run(path, options.member)
    with warm_interpreter(interpreter(spec, options.python)) as warm:
        report = rehearse(spec, path, warm, options.rows, options.keep)
    if options.format == "text":
        return show.text(report, color=colored()), show.status(report)
    form = show.as_json if options.format == "json" else show.markdown
    return form(report), show.status(report)
