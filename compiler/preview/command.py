"""`xpc preview SPEC`: show rows as the trainer gets them, which of their tokens count in the loss, and what is wrong
with the rows.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from xpc.compiler.files.atomic import write_text
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview import golden
from xpc.compiler.preview.process import Request, preview
from xpc.compiler.preview.show import as_json, findings, text
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.output import colored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EPILOG = (
    "The bundle's own trainer prepares the rows, in an interpreter with the training packages; it needs no GPU and no "
    "weights. Exit status: 0 nothing wrong (warnings and notes too), 1 the spec or a row is wrong, or the golden file "
    "differs, 2 wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc preview", description="Show rows as the trainer gets them, and what is learned from them.", epilog=EPILOG
    )
    add = parser.add_argument
    add("file", metavar="SPEC", help="a spec")
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--row", type=_number, metavar="K", help="only row K of each source, counted from 0")
    rows.add_argument("--random", type=_number, metavar="SEED", help="random rows instead of the first ones")
    rows.add_argument("--longest", action="store_true", help="the longest rows; every row is read")
    rows.add_argument("--cut", action="store_true", help="rows that are cut off; every row is read")
    rows.add_argument("--order", action="store_true", help="the rows of the first N steps, and what is packed together")
    help = "count over the first N rows of each source, or over all; `all` downloads complete datasets of the hub"
    add("--rows", type=_rows, metavar="N|all", help=help)
    add("-n", type=_positive, default=3, metavar="N", help="rows of each source (default: 3)")
    add("--member", metavar="NAME", help="the run of a sweep, by its name or number (default: the first)")
    add("--tokens", action="store_true", help="print each token with its id")
    help = "call the reward functions and tools with the rows, which executes their code"
    add("--rewards", action="store_true", help=help)
    add("--html", metavar="FILE", help="write the rows as a page, too")
    add("--golden", metavar="FILE", help="compare with this file; it is written if it does not exist")
    add("--update", action="store_true", help="write the golden file again")
    add("--python", metavar="PATH", help="the interpreter that trains (default: this one if it has trl, or $PYTHON)")
    add("--trust-code", action="store_true", help="run the tokenizer's own code, if `trust_remote_code` is set")
    add("--deny", choices=("warnings",), help="exit with 1 if there are warnings")
    add("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    return parser.parse_args(list(arguments))


def _number(word: str) -> int:
    if re.fullmatch(r"[0-9]{1,12}", word) is None:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, not `{word[:40]}`")
    return int(word)


def _rows(word: str) -> str:
    return word if word == "all" else str(_positive(word))


def _positive(word: str) -> int:
    if not _number(word):
        raise argparse.ArgumentTypeError("must be a whole number from 1 on, not `0`")
    return int(word)


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the text to print and the exit status. Raises UsageError and SpecError."""
    if options.file == "-":
        raise UsageError(
            "preview needs a spec in a file, because its data and model are searched for next to that file"
        )
    if options.update and options.golden is None:
        raise UsageError("--update writes the golden file again, and needs --golden FILE")
    choice = next((one for one in ("longest", "cut", "order") if getattr(options, one)), "first")
    scan = options.rows or ("local" if choice != "first" else None)
    request = Request(
        options.n, options.row, options.random, choice, scan, options.rewards, options.trust_code, options.member
    )
    found = preview(options.file, request, options.python)
    if options.html is not None:
        from xpc.compiler.preview.html import page

        write_text(options.html, page(found, options.file))
    status = _status(found, options.deny is not None)
    if options.golden is not None:
        answer, differs = golden.compare(options.golden, found, options.update)
        return answer, int(differs or status)
    if options.format == "json":
        return as_json(found), status
    return text(found, color=colored(), tokens=options.tokens), status


def _status(found: dict[str, Any], denied: bool) -> int:
    """The exit status: 1 if there is an error, otherwise 0. With `--deny warnings`, the status is also 1 if there is a
    warning, or if some of the counted rows are dropped or longer than `seq`.
    """
    wrong, counted = {"error", "warning"} if denied else {"error"}, found["counts"]
    lost = denied and counted is not None and (counted["dropped"] or counted["cut"])
    return int(bool(lost) or any(one["severity"] in wrong for one in findings(found)))
