"""Format the specs of a repository, and then check them, for the GitHub Action and the pre-commit hooks.

With `--base`, only the specs that the change edits or affects are checked. The message of a finding in an extended spec
names the runs that extend this spec.
"""

from __future__ import annotations

import argparse
import glob
import os
import sys
from collections.abc import Iterable, Sequence

from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.pipeline import check_text
from xpc.compiler.render import FORMATS, render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.output import show, show_rendered
from xpc.compiler.render.visible import visible
from xpc.compiler.review import fmt
from xpc.compiler.review.pull_request.affected import affected
from xpc.compiler.review.pull_request.entries import COPIED, changed_files, excluded, fork_and_head, matching
from xpc.compiler.review.repository import Commit, Repository, of_folder
from xpc.compiler.review.spec_finder import Specs, specs_of_commit, specs_of_work_tree
from xpc.grammar.diagnostic import ERROR, WARNING, Diagnostic
from xpc.grammar.record import evolve

NAMED = 3
"""If a finding in a base concerns several specs that extend the base, its message names at most this many of these
specs.
"""
NOTHING = "no spec to check"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("check", description=__doc__)
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="a spec, a folder or a glob; with --hook a changed file"
    )
    parser.add_argument("--base", metavar="COMMIT", help="check only what the changes since this commit affect")
    parser.add_argument("--hook", action="store_true", help="the paths are changed files, as pre-commit passes them")
    parser.add_argument("--format", choices=FORMATS, default="full", help="output format of the findings")
    parser.add_argument("--deny", choices=("", "warnings"), default="", help="exit with 1 if there are warnings")
    parser.add_argument("--allow-oom", action="store_true", help="report a run that does not fit its GPUs as a note")
    return parser.parse_args(list(arguments))


def formatted(paths: Sequence[str]) -> int:
    """Format the files that are outside bundles. Returns the same exit status as `xpc fmt`. Raises UsageError."""
    repository = of_folder()
    specs = specs_of_work_tree(repository, [repository.inside(one) for one in paths])
    own = [one for one in paths if repository.inside(one) in specs.files]
    text, status = fmt.run(fmt.parse(["--", *own])) if own else ("", 0)
    show(text)
    return status


def check(arguments: Sequence[str]) -> int:
    """Check the specs and print the findings. Returns the same exit status as `xpc check`. Raises UsageError."""
    options, repository = parse(arguments), of_folder()
    given = [repository.inside(one) for one in options.paths if os.path.isfile(one)]
    specs = specs_of_work_tree(repository, given)
    if options.hook:
        files: list[str] = []
        changed = {repository.inside(one) for one in options.paths} | _deleted(repository)
        runs = affected(repository, specs, specs, changed)
    else:
        files, runs = _selected(repository, specs, options.paths)
        if options.base:
            before, after = fork_and_head(repository, options.base)
            changed = changed_files(before, after)
            touched = set(affected(repository, specs_of_commit(before), specs, changed))
            files, runs = [one for one in files if one in changed], [one for one in runs if one in touched]
    if specs.copies:
        show(f"{visible(specs.copies[0])} {excluded(len(specs.copies), *COPIED)}")
    for one in specs.links:
        show(f"{visible(one)} is a symbolic link, and is not checked")
    if not files and not runs:
        show(NOTHING)
        return 0
    status = 0
    if files:
        text, status = fmt.run(fmt.parse(["--check", "--", *map(repository.from_here, files)]))
        show(text)
    found, wrong = _findings(repository, runs, options)
    show_rendered(render(found, options.format))
    denied = options.deny and any(one.severity == WARNING for one in found)
    return max(status, int(wrong or bool(denied)))


def _deleted(repository: Repository) -> set[str]:
    """The files of HEAD that are no longer tracked. pre-commit does not pass deleted files to a hook, so the hook looks
    for them itself.
    """
    head = repository.commit("HEAD")
    return set() if head is None else set(Commit.of(repository, head).files) - set(repository.index())


def _selected(repository: Repository, specs: Specs, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return two lists: the `.xp` files that `paths` select, and the specs among them. A path is a folder, a glob or a
    file, relative to the working directory.
    """
    files: dict[str, None] = {}
    for one in paths:
        if os.path.isdir(one):
            start = repository.prefix(one)
            files |= dict.fromkeys(path for path in specs.files if path.startswith(start))
            continue
        for path in matching(one):
            inside = repository.inside(path)
            if inside in specs.files:
                files[inside] = None
            elif not glob.has_magic(one):  # the pattern may match files that are not specs
                raise UsageError(f"{one} is not a spec")
    return list(files), [one for one in files if one in specs.runs]


def _findings(
    repository: Repository, runs: Sequence[str], options: argparse.Namespace
) -> tuple[list[Diagnostic], bool]:
    """Return a pair: all findings, without repetitions, and whether any spec has an error. The message of a finding in
    an extended spec names the runs that extend this spec.
    """
    found: dict[tuple[object, ...], tuple[Diagnostic, list[str]]] = {}
    wrong = False
    for run in runs:
        path = repository.from_here(run)
        try:
            data, name, workspace = read_spec(path)
        except UsageError as error:  # an error in one spec must not hide the findings in the others
            show(f"xpc: {error}", sys.stderr)
            wrong = True
            continue
        allow_oom = workspace.allow_oom or options.allow_oom
        checked = check_text(data, name, evolve(workspace, allow_oom=allow_oom))
        wrong = wrong or any(one.severity == ERROR for one in checked.problems)
        for one in located(checked.problems, path):
            location = one.primary
            key = (
                one.severity,
                one.code,
                one.message,
                location and (location.source.name, location.span.start, location.span.end),
            )
            found.setdefault(key, (one, []))[1].append(path)
    return [_naming(one, paths) for one, paths in found.values()], wrong


def _naming(one: Diagnostic, paths: Sequence[str]) -> Diagnostic:
    """Add to the message of a finding in a base the names of the runs in `paths`, which extend this base. A finding in
    a spec that no other spec in `paths` extends is returned unchanged.
    """
    here = "" if one.primary is None else os.path.normpath(one.primary.source.name)
    others = [path for path in paths if os.path.normpath(path) != here]
    if not here or not others:
        return one
    more = len(others) - NAMED
    named = ", ".join(others[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return evolve(one, message=f"{one.message} (in the run{'s' if len(others) > 1 else ''} of {named})")
