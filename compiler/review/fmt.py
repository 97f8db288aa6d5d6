"""`xpc fmt`: write specs in canonical form. Before a file is changed, the new text is checked to have the same
meaning.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from xpc.compiler.files.atomic import write_text
from xpc.compiler.files.folder_contents import walk
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.render import render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.line_difference import line_difference
from xpc.compiler.render.output import show, show_rendered
from xpc.compiler.render.visible import visible
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse as parse_text
from xpc.grammar.read import decode
from xpc.grammar.source import Source

EPILOG = (
    "Comments and the order of settings stay. A file is written only if the formatted text resolves to the same "
    "experiment and formatting it again changes nothing. Exit status: 0 formatted or nothing to do, 1 a spec has "
    "syntax errors, or with --check or --diff is not formatted, 2 wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("xpc fmt", description="Write specs in canonical form.", epilog=EPILOG)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a spec, a folder of them, or - for standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; list the files that are not formatted")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")
    return parser.parse_args(list(arguments))


def is_exact(options: argparse.Namespace) -> bool:
    """Whether the printed text is the formatted file itself, which must be printed unchanged."""
    return "-" in options.files and not options.check and not options.diff


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    out: list[str] = []
    found: list[Diagnostic] = []
    changed = unread = 0
    for path in _files(options.files):
        try:
            data, name, _ = read_spec(path)
            text, wrong = formatted(data, name, os.path.dirname(path) if path != "-" else "")
        except UsageError as error:
            show(f"xpc: {error}", sys.stderr)
            unread += 1
            continue
        found += located(wrong, path)
        if text is None:
            continue
        same = text.encode() == data
        changed += not same
        if options.diff:
            before = data.decode("utf-8", "replace").split("\n")
            lines = line_difference(before, text.split("\n"), path, path, 3)
            out += [visible(line) + "\n" for line in lines]
        if options.check:
            out.append("" if same else f"would format {visible(path)}\n")
        elif not options.diff and path == "-":
            out.append(text)
        elif not options.diff and not same:
            write_text(path, text)
            out.append(f"formatted {visible(path)}\n")
    if found:
        show_rendered(render(found, "full"), sys.stderr)
    dry_run = options.check or options.diff
    return "".join(out), 2 if unread else int(bool(found) or (dry_run and changed > 0))


def formatted(data: bytes, name: str, folder: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Format a spec in `folder`. Returns its canonical text and no errors, or None and its syntax errors.

    Raises UsageError if the formatted text has another meaning, which would be a bug of the formatter.
    """
    source, hidden = decode(data, name)
    file, problems = parse_text(source)
    if hidden or problems:
        return None, (*hidden, *problems)
    text = format_file(file)
    if text == source.text:
        return text, ()
    again, problems = parse_text(Source(name, text))
    if problems or format_file(again) != text or not _means_the_same(data, text, name, folder):
        raise UsageError(f"{name} is not changed: formatting would change its meaning, which is a bug of xpc")
    return text, ()


def _means_the_same(data: bytes, text: str, name: str, folder: str) -> bool:
    """Whether two texts have the same syntax tree, and resolve to the same experiment."""
    # imported only here, because it is slow, and needed only if the text changes
    from xpc.compiler.review.meaning import meaning_of, plain

    trees = (plain(parse_text(decode(one, name)[0])[0]) for one in (data, text.encode()))
    before, after = trees
    root = os.path.abspath(folder)
    return before == after and meaning_of(data, name, root) == meaning_of(text.encode(), name, root)


def _files(paths: Sequence[str]) -> Iterator[str]:
    """The given files, and all specs below the given folders. Specs inside bundles are skipped, because `xpc compile`
    writes them. Links in folders are skipped, because they may lead to other files of the user.
    """
    for path in paths:
        if path == "-" or not os.path.isdir(path):
            yield path
            continue
        for where, folders, names in walk(path):
            folders[:] = sorted(one for one in folders if not one.startswith(".") and not one.endswith(".bundle"))
            specs = (os.path.join(where, name) for name in sorted(names) if name.endswith(".xp"))
            yield from (one for one in specs if not os.path.islink(one))
