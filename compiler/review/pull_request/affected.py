"""Find the specs that a change affects, that is, the specs that read a changed file."""

from __future__ import annotations

import os
from collections.abc import Iterator

from xpc.compiler.data.image_paths import image_folder, image_paths
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.resolve.image_digests import pictured
from xpc.compiler.resolve.weights import local_models
from xpc.compiler.review.commit_paths import followed
from xpc.compiler.review.operands import open_operand
from xpc.compiler.review.repository import Repository
from xpc.compiler.review.spec_finder import Specs, parents
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve


def affected(repository: Repository, was: Specs, now: Specs, changed: set[str]) -> list[str]:
    """The specs that changed files affect: new and deleted specs, and specs that read a changed file. A spec reads its
    own text, the specs that it extends, its lock, and files such as templates, rows and local models.
    """
    found = {*was.reading(changed), *now.reading(changed), *(was.runs.keys() ^ now.runs.keys())}
    others = {path for path in changed if not path.endswith((".xp", ".lock"))}
    if others:
        above = others.union(*map(parents, others))
        found.update(path for path in now.runs if path not in found and _reads(repository, path, others, above))
    return sorted(found)


def _reads(repository: Repository, path: str, changed: set[str], above: set[str]) -> bool:
    """Whether checking a spec of the working tree reads one of the `changed` files, or a folder that contains one.
    `above` are the changed files and all folders that contain them.
    """
    with open_operand(os.path.join(repository.top, path)) as one:
        if one.workspace is None:
            return False
        workspace = evolve(one.workspace, allow_oom=True)
        checked = check_text(one.data, one.name, workspace)
        if checked.spec is not None:
            workspace.located.update(_uncopied(checked.spec, workspace))
        folder = os.path.dirname(path)
        located = (os.path.normpath(os.path.join(folder, name)).replace(os.sep, "/") for name in workspace.located)
        read = {each for name in located for each in followed(name, repository.link)}
    names = read.union(*map(parents, read))  # `changed` may also contain submodules and links to folders
    return not (changed.isdisjoint(names) and above.isdisjoint(read))


def _uncopied(spec: Spec, workspace: Workspace) -> Iterator[str]:
    """The files that a run reads and its bundle does not contain: the files of local models with their folders, and the
    images of rows.
    """
    for model in local_models(spec):
        paths = [os.path.join(model, name) for name in workspace.listed(model)]
        yield from {*paths, *map(os.path.dirname, paths)}  # a link may lead to a folder whose files were deleted
    for source in pictured(spec):
        folder = image_folder(source)
        yield from (os.path.join(folder, path) for path in image_paths(source, workspace) or ())
