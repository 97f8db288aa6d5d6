"""`xpc diff A B`: show how a change of the spec changes the run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.plan.price import HELP, price_argument
from xpc.compiler.render import render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.output import show_rendered
from xpc.compiler.render.visible import visible
from xpc.compiler.review import source_file
from xpc.compiler.review.changes import Comparison, compare_operands
from xpc.compiler.review.compare import CODE, DIFFERS, SAME
from xpc.compiler.review.differences.templates import template_changes
from xpc.compiler.review.operands import DoesNotCompile, Operand, open_operand
from xpc.compiler.review.show import FORMATS, broken_as_json
from xpc.grammar.record import evolve

STATUS = {SAME: 0, CODE: 4, DIFFERS: 1}
"""Maps each verdict to the exit status of `xpc diff --exit-code`."""
BROKEN = 5

EPILOG = (
    "A and B are each a spec, REV:FILE for the spec of a commit, a bundle, or the folder of a sweep. Meanings are "
    "compared: comments, order and defaults that are written out make no difference. Bundles are compared file by "
    "file. If A or B is a file that `xpc import` reads, each of its lines is shown next to what the other, a spec, has "
    "for it, with ! where the spec has something else. Exit status: 0 compared, 1 A or B does not compile, 2 wrong "
    "usage. With --exit-code: 0 same run, 4 same settings, other code or packages, 1 differs, 5 A or B does not "
    "compile, 2 wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("xpc diff", description="Compare two specs, commits or bundles.", epilog=EPILOG)
    parser.add_argument(
        "before", metavar="A", help="a spec, REV:FILE, a bundle, another tool's file, or - for standard input"
    )
    parser.add_argument("after", metavar="B", help="what to compare with A, of the same kinds")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="output format (default: text)")
    parser.add_argument("--exit-code", action="store_true", help="exit with 0, 4, 1 or 5 (see below)")
    parser.add_argument("--price", type=price_argument, metavar="PRICE", help=HELP)
    for name, value in (("--pick", "N"), ("--set", "NAME=VALUE")):
        parser.add_argument(name, action="append", default=[], metavar=value,
                            help=f"the option {name} with which `xpc import` read the other tool's file")  # fmt: skip
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    for name, other in ((options.before, options.after), (options.after, options.before)):
        if source_file.is_source(name):
            return _source(name, other, options)
    if options.pick or options.set:
        raise UsageError(f"{options.before} is no file of another tool, so --pick and --set have no effect")
    with open_operand(options.before) as one, open_operand(options.after) as other:
        for name in dict.fromkeys(each.name for each in (one, other) if each.name or one.name == other.name):
            before, after = one.check(name), other.check(name)
            broken = [operand for operand in (before, after) if not operand.runs]
            if not broken:
                # Both specs are checked under the same file name, so that their file names are not reported as a
                # difference. If one spec extends the other, both get the name of the extending spec: under the name of
                # its base, the extending spec would seem to extend itself, which is an error.
                break
        if broken:
            return _broken(broken, options)
        try:
            found = compare_operands(before, after, options.price)
        except DoesNotCompile as member:
            return _broken([member.operand], options)
        found = _with_templates(found, before, after)
        return FORMATS[options.format](found), STATUS[found.verdict] if options.exit_code else 0


def _with_templates(found: Comparison, before: Operand, after: Operand) -> Comparison:
    """Add a sample row to the comparison, rendered with the old and with the new chat template. Only `xpc diff` renders
    templates.
    """
    if before.sweep != after.sweep:
        return found
    runs = [{run.name: run for run in operand.runs} for operand in (before, after)]
    groups = []
    for group in found.groups:
        name = group.members[0] if group.members else ""
        one, other = (named.get(name) for named in runs)
        lines = () if one is None or other is None else tuple(template_changes(one.spec, other.spec))
        contents = (*group.difference.contents, *lines)
        groups.append(evolve(group, difference=evolve(group.difference, contents=contents)))
    return evolve(found, groups=tuple(groups))


def _source(name: str, compared: str, options: argparse.Namespace) -> tuple[str, int]:
    """Show another tool's file, such as an Axolotl YAML, next to the spec `compared`. Raises UsageError."""
    if options.format != "text" or options.price is not None:
        raise UsageError(f"{name} is not a spec, and is compared as text, without --format and --price")
    with open_operand(compared) as other:
        spec = other.check(other.name)
    if not spec.runs:
        return _broken([spec], options)
    imported = [f"--{option}={one}" for option in ("pick", "set") for one in getattr(options, option)]
    text, differs = source_file.compare(name, spec.runs[0].spec, compared, imported)
    return text, int(differs) if options.exit_code else 0


def _broken(operands: Sequence[Operand], options: argparse.Namespace) -> tuple[str, int]:
    """Return the output for arguments that do not compile. The errors themselves are printed to standard error."""
    for operand in operands:
        show_rendered(render(operand.errors, "full"), sys.stderr)
    titles = [one.title for one in operands]
    if options.format == "json":
        text = broken_as_json(titles)
    else:
        text = "".join(f"{visible(one)} does not compile, so there is nothing to compare\n" for one in titles)
    return text, BROKEN if options.exit_code else 1
