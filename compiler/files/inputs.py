"""Read the specs that a command line names. Diagnostics show their paths relative to the working directory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from xpc.compiler.files.streams import standard_input
from xpc.compiler.files.workspace import Workspace, read_file
from xpc.grammar.diagnostic import Diagnostic, Label, Silenced
from xpc.grammar.nearest import nearest
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

MAX_SPEC = 16 * 2**20
"""Maximum size of a spec in bytes."""
MAX_NAMES = 1000
"""At most this many specs of a folder are compared with a misspelt name, to suggest the right one."""
OTHER_TOOLS = (".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".json", ".py", ".ipynb")
"""Endings of the files that `xpc import` reads."""
SENTENCE = re.compile(rb"^(?:xpc[ \t]+\d|extends[ \t]|train[ \t]+\S+[ \t]+on[ \t])", re.MULTILINE)
"""A pattern for a line that only a spec has."""


class UsageError(Exception):
    """Raised for wrong usage or a file that cannot be read; the message is one sentence for the user."""


class SpecError(Exception):
    """Raised if a command has no answer because the spec has errors. The message is one sentence for the user."""


def read_spec(path: str) -> tuple[bytes, str, Workspace]:
    """Read a spec. Returns its bytes, its name in diagnostics and bundles, and its workspace.

    Raises UsageError if it cannot be read.
    """
    if path == "-":
        try:
            return standard_input(MAX_SPEC), "stdin.xp", Workspace(os.path.abspath("."))
        except OSError as error:
            raise UsageError(f"standard input cannot be read: {error.strerror or error}") from error
    try:
        data = read_file(path, MAX_SPEC)
        full = os.path.abspath(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        similar = _similar(path) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{path} cannot be read: {why}{similar}") from error
    if full.endswith(OTHER_TOOLS) and data.strip() and not SENTENCE.search(data):
        new = os.path.splitext(os.path.basename(path))[0] + ".xp"
        raise UsageError(f"{path} is not a spec: `xpc import {path} -o {new}` makes one from the file of another tool")
    return open_spec(full, data)


def _similar(path: str) -> str:
    """If `path` is probably a misspelt name of another spec in the same folder, return a phrase with that spec's name;
    otherwise "".
    """
    folder, name = os.path.split(path)
    try:
        specs = sorted(one for one in os.listdir(folder or ".") if one.endswith(".xp") and one != name)
    except (OSError, ValueError):
        return ""
    near = nearest(name.removesuffix(".xp"), [one.removesuffix(".xp") for one in specs[:MAX_NAMES]])
    return f"; did you mean `{os.path.join(folder, near)}.xp`?" if near is not None else ""


def open_spec(full: str, data: bytes) -> tuple[bytes, str, Workspace]:
    """Return what `read_spec` returns, for a spec with the contents `data`. The file at its absolute path `full` need
    not exist.
    """
    folder = os.path.dirname(full)
    workspace = Workspace(folder, lock=os.path.basename(full) + ".lock")
    if os.path.basename(full) == "spec.xp" and os.path.exists(os.path.join(folder, "bundle.toml")):
        from xpc.compiler.files import bundled  # imported here, because only the spec of a bundle needs it

        table = bundled.manifest(folder)
        if table is not None:
            workspace = bundled.workspace(folder, table)
            data = bundled.as_written(data, workspace.copies_of)
    # the name of a file may contain bytes that are not text, but diagnostics and bundle.toml can contain only text
    name = os.path.basename(full).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return data, name, workspace


def located(problems: Sequence[Diagnostic], path: str) -> list[Diagnostic]:
    """The diagnostics with paths relative to the working directory. `path` is the path of the spec."""
    base = os.path.dirname(path)
    if not base:
        return list(problems)
    move = _mover(base)
    return [_moved(one, move) for one in problems]


def located_silences(silenced: Sequence[Silenced], path: str) -> list[Silenced]:
    """The silenced findings with paths relative to the working directory. `path` is the path of the spec."""
    move = _mover(os.path.dirname(path))
    return [evolve(one, finding=_moved(one.finding, move), location=move(one.location)) for one in silenced]


def _moved(one: Diagnostic, move: Callable[[Label], Label]) -> Diagnostic:
    return evolve(one, primary=one.primary and move(one.primary), related=tuple(move(label) for label in one.related))


def _mover(base: str) -> Callable[[Label], Label]:
    """Return a function that copies a label and makes the path of its file relative to the working directory. Labels of
    one file share one new source.
    """
    renamed: dict[int, Source] = {}

    def move(label: Label) -> Label:
        old = label.source
        if id(old) not in renamed:
            renamed[id(old)] = Source(os.path.normpath(os.path.join(base, old.name)), old.text)
        return evolve(label, source=renamed[id(old)])

    return move
