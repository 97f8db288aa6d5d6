"""`xpc new`: write a first spec, or copy a recipe with the files that it uses."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

from xpc.compiler.files.atomic import replace_files
from xpc.compiler.files.inputs import UsageError, read_spec
from xpc.compiler.pipeline import check_text
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.grammar.nearest import nearest
from xpc.grammar.package_data import read_text

EPILOG = (
    "`xpc list recipes` names the recipes. No existing file is overwritten. "
    "Exit status: 0 if the spec was written, 2 for wrong usage, or if a file with its name exists."
)
SPECS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "specs")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("xpc new", description="Write a spec to begin with.", epilog=EPILOG)
    parser.add_argument("file", metavar="FILE", help="the spec to write, such as run.xp")
    parser.add_argument("--from", dest="source", metavar="RECIPE|FILE", help="copy a recipe or a spec instead")
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    target = options.file if options.file.endswith(".xp") else options.file + ".xp"
    name = os.path.basename(target).removesuffix(".xp")
    if options.source is None:
        files = {os.path.basename(target): read_text(__file__, "starter.xp").replace("NAME", name).encode()}
    else:
        files = copied(_found(options.source), os.path.basename(target))
    folder = os.path.dirname(target) or "."
    there = [one for one in files if os.path.lexists(os.path.join(folder, one))]
    if there:
        raise UsageError(f"{os.path.join(folder, there[0])} already exists; choose another name or folder")
    try:
        replace_files({os.path.join(folder, one): data for one, data in files.items()})
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return "".join(f"wrote {os.path.join(folder, one)}\n" for one in files) + f"then: xpc check {target}\n", 0


def recipes() -> Mapping[str, str]:
    """The recipes that are installed with xpc. Maps the name of each recipe to the path of its spec."""
    names = sorted(one for one in os.listdir(SPECS) if one.endswith(".xp")) if os.path.isdir(SPECS) else []
    return {name.removesuffix(".xp"): os.path.join(SPECS, name) for name in names}


def _found(source: str) -> str:
    """The path of the spec to copy. `source` is the name of a recipe, or a path. Raises UsageError if there is no such
    recipe or file.
    """
    known = recipes()
    if source in known:
        return known[source]
    if os.path.isfile(source):
        return source

    holding = [one for one in known if source.lower() in one][:3]
    near = " or ".join(holding) or nearest(source, list(known))
    hint = f"did you mean {near}?" if near else "`xpc list recipes` names them all"
    raise UsageError(f"there is no recipe and no file `{source}`: {hint}")


def copied(path: str, name: str) -> dict[str, bytes]:
    """The files of a copy of the spec `path`, by name: the spec under its new name `name`, and the files that it uses
    (extended specs, templates, rewards). Raises UsageError.
    """
    data, _, workspace = read_spec(path)
    check_text(data, os.path.basename(path), workspace)
    files = {name: data}
    for inside in sorted(workspace.located):
        location = workspace.locate(inside)[1]
        if os.path.isfile(location) and not inside.startswith(".."):
            with open(location, "rb") as handle:
                files[inside] = handle.read()
    return files
