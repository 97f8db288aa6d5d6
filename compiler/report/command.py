"""`xpc report DIR...`: compare what specs state, what was planned, and what was measured in the runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from xpc.compiler.files.atomic import write_text
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.report.entry import Entry, entries
from xpc.compiler.report.html import page
from xpc.compiler.report.show import as_json, as_text, markdown

FORMATS: dict[str, Callable[[Sequence[Entry]], str]] = {"text": as_text, "markdown": markdown, "json": as_json}
EPILOG = (
    "DIR is the output folder of a run, or its bundle. The run may still be active, or have crashed. For a sweep, DIR "
    "is its bundle or its output folder, and all members are reported. Several runs are overlaid, and their specs are "
    "compared with the first run's spec. The bundle of a run is found where the run was launched, or in a folder "
    "*.bundle here or next to the run. Nothing in DIR is executed. Exit status: 0 reported, 2 wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc report", description="Show what runs were asked to do, what was planned and what ran.", epilog=EPILOG
    )
    parser.add_argument("folders", nargs="+", metavar="DIR", help="the output folder of a run, a bundle, or a sweep")
    parser.add_argument("--bundle", metavar="DIR", help="the bundle of the run, if the report does not find it")
    parser.add_argument("--html", metavar="FILE", help="write the report to FILE, as an HTML page with curves")
    help = "format of the printed report (default: text, but with --html nothing is printed)"
    parser.add_argument("--format", choices=tuple(FORMATS), help=help)
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    folders = list(dict.fromkeys(options.folders))
    found = entries(folders, options.bundle)
    if options.html is not None:
        write_text(options.html, page(found))
        if options.format is None:
            return f"wrote {options.html}\n", 0
    return FORMATS[options.format or "text"](found), 0
