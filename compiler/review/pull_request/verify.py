"""Verify the bundles, locks and finished runs of a repository, like `xpc verify --all`, for the GitHub Action and the
pre-commit hooks.

The Action verifies everything in its folders, with `--strict`. A hook verifies only what changed files concern: each
bundle, sweep or run that contains a changed file, and the lock and the bundle of each spec that reads a changed file,
such as its base.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence

from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.output import show
from xpc.compiler.review import verify as command
from xpc.compiler.review.pull_request.affected import affected
from xpc.compiler.review.pull_request.entries import changed_files, fork_and_head, matching
from xpc.compiler.review.repository import Repository, of_folder
from xpc.compiler.review.spec_finder import Specs, parents, specs_of_work_tree
from xpc.compiler.review.verifying.chain import (
    FolderContents,
    as_text,
    bundle_lines,
    by_name,
    is_bundle,
    is_run,
    spec_lines,
    spec_of,
)

NOTHING = "no bundle, lock or run to verify"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("verify", description=__doc__)
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="a changed file; with --all a folder, a file or a glob"
    )
    parser.add_argument("--all", action="store_true", help="verify everything below the paths")
    parser.add_argument("--base", metavar="COMMIT", help="the commit with which the pull request is compared")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bundle contains bytecode")
    return parser.parse_args(list(arguments))


def verify(arguments: Sequence[str]) -> int:
    """Verify and print a line for each item. Returns the same exit status as `xpc verify --all`. Raises UsageError."""
    text, status = _verified(parse(arguments))
    show(text)
    return status


def _verified(options: argparse.Namespace) -> tuple[str, int]:
    repository = of_folder()
    specs = specs_of_work_tree(repository)
    found = _tracked(repository, specs)
    below = [repository.inside(one) for one in (_folders(options.paths) if options.all else options.paths)]
    wanted = _below(found, below) if options.all else _touched(repository, specs, found, set(below))
    changed = changed_files(*fork_and_head(repository, options.base)) if options.base else set()
    touched = {folder for path in changed for folder in parents(path)}
    own = command.parse(["--all", *(["--strict"] if options.strict else [])])
    checkers = command.checkers(own, lambda folder: options.all and repository.inside(folder) not in touched)
    found, wanted = _from_here(repository, found), _from_here(repository, wanted)
    locks = [one for one in wanted.specs if os.path.lexists(f"{one}.lock")]
    lines = [line for one in locks for line in spec_lines(one, False, compiles=False)]
    lines += bundle_lines(wanted, found, *checkers)
    return as_text(lines) if lines else (NOTHING, 0)


def _tracked(repository: Repository, specs: Specs) -> FolderContents:
    """The specs, bundles and runs that git tracks. A bundle inside another bundle or a sweep is not listed. Paths are
    relative to the top of the repository.
    """
    files: dict[str, set[str]] = {}
    for path in repository.index():
        files.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    found = {folder for folder, names in files.items() if is_bundle(names)}
    bundles = sorted(one for one in found if found.isdisjoint(_above(one)))
    runs = sorted(one for one, names in files.items() if is_run(names) and found.isdisjoint([one, *_above(one)]))
    return FolderContents(list(specs.runs), bundles, runs)


def _above(folder: str) -> list[str]:
    """The folders that contain a folder, up to the top of the repository."""
    return ["", *parents(folder)] if folder else []


def _folders(paths: Iterable[str]) -> list[str]:
    """The folders in the paths of a workflow. A path that is a file or a glob stands for the folders of its files."""
    out: dict[str, None] = {}
    for one in paths:
        if os.path.isdir(one):
            out[one] = None
        else:
            out |= dict.fromkeys(os.path.dirname(path) or "." for path in matching(one))
    return list(out)


def _below(found: FolderContents, folders: Sequence[str]) -> FolderContents:
    """The specs, bundles and runs inside the given folders."""
    starts = tuple("" if one == "." else f"{one}/" for one in folders)

    def inside(paths: Iterable[str]) -> list[str]:
        return [path for path in paths if f"{path}/".startswith(starts)]

    return FolderContents(inside(found.specs), inside(found.bundles), inside(found.runs))


def _touched(repository: Repository, specs: Specs, found: FolderContents, changed: set[str]) -> FolderContents:
    """Select what changed files concern: the specs that read a changed file, the bundles of these specs, and the
    bundles and runs that contain a changed file.
    """
    folders = {folder for path in changed for folder in _above(path)}
    touched = affected(repository, specs, specs, changed)
    locations = {os.path.join(repository.top, one): one for one in found.specs}
    named = by_name(list(locations))
    compiled = {one: spec_of(os.path.join(repository.top, one), named) for one in found.bundles}
    bundles = [one for one, spec in compiled.items() if one in folders or locations.get(spec or "") in touched]
    return FolderContents(touched, bundles, [one for one in found.runs if one in folders])


def _from_here(repository: Repository, found: FolderContents) -> FolderContents:
    """Convert the paths in `found`, which are relative to the repository's top, to the working directory."""
    here = repository.from_here
    return FolderContents([*map(here, found.specs)], [*map(here, found.bundles)], [*map(here, found.runs)])
