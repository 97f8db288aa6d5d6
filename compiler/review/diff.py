"""`xpc diff A B`: how a change of the spec changes the run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from xpc.compiler.render import render
from xpc.compiler.review.changes import compare_operands
from xpc.compiler.review.operands import open_operand
from xpc.compiler.review.show import FORMATS

EPILOG = (
    "A and B are each a spec, REV:FILE for the spec of a commit, a bundle, or the folder of a sweep. Meanings are "
    "compared: comments, order and defaults that are written out make no difference. Exit status: 0 compared, 1 A or B "
    "does not compile, or with --exit-code the runs differ, 2 wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Exits with status 2 if they are wrong, as argparse does."""
    parser = argparse.ArgumentParser("xpc diff", description="Compare two specs, commits or bundles.", epilog=EPILOG)
    parser.add_argument("before", metavar="A", help="a spec, REV:FILE, a bundle, or - for standard input")
    parser.add_argument("after", metavar="B", help="the same, to compare with A")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="output format (default: text)")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if the runs differ")
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """The printed text and the exit status. Raises UsageError."""
    with open_operand(options.before) as one, open_operand(options.after) as other:
        for name in dict.fromkeys(each.name for each in (one, other) if each.name or one.name == other.name):
            before, after = one.check(name), other.check(name)
            broken = [operand for operand in (before, after) if not operand.runs]
            if not broken:
                break  # else try the other name: a spec that extends the other cannot be checked under its name
        for operand in broken:
            sys.stderr.write(render(operand.errors, "full"))
        if broken:
            return "".join(f"{one.title} does not compile, so there is nothing to compare\n" for one in broken), 1
        found = compare_operands(before, after)
        return FORMATS[options.format](found), int(options.exit_code and not found.equal)
