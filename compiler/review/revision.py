"""Read `REV:file`, a spec as it was in a commit. The specs that it extends, the templates and the data are also those
of that commit.

If the spec names a file, it is copied from git into a temporary folder when it is read. A file that git does not have,
such as large data, is read from the working tree.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.lfs import pointer
from xpc.compiler.files.workspace import LEVELS, SKIPPED, Workspace, inside_of
from xpc.compiler.review.repository import Commit, find, followed, stored_file
from xpc.grammar.record import field, mutable


@mutable
class RevisionWorkspace(Workspace):
    """The workspace of a spec in a commit. Files of the commit are copied into the temporary folder `mirror`.

    `paths` maps each path, relative to the top folder, to the file that stands for it, in `mirror` or in the working
    tree. `tracked` are the files in git's index; it is None until the index is read.
    """

    commit: Commit = field(kw_only=True)
    mirror: str = ""
    paths: dict[str, str] = field(factory=dict)
    tracked: dict[str, str] | None = None

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """Like Workspace.locate, but the file is copied from git first."""
        name, path = Workspace.locate(self, written, base)
        inside = os.path.relpath(path, self.mirror).replace(os.sep, "/")
        if os.path.isabs(written) or inside.split("/")[0] == ".." or "\0" in written:
            return name, path
        if inside not in self.paths:
            self.paths[inside] = self._put(inside, path)
        return name, self.paths[inside]

    def listed(self, written: str) -> list[str]:
        """Like Workspace.listed, but files that git has only as an LFS pointer are listed, too, although they are not
        in `mirror`.
        """
        start = os.path.relpath(Workspace.locate(self, written)[1], self.mirror).replace(os.sep, "/") + "/"
        found = set(Workspace.listed(self, written))
        there = (one for one, path in self.paths.items() if one.startswith(start) and os.path.isfile(path))
        for name in (one[len(start) :] for one in there):
            *folders, last = name.split("/")
            hidden = any(one.startswith(SKIPPED) for one in folders)
            if not (hidden or last.startswith(".") or len(folders) > LEVELS):
                found.add(name)
        return sorted(found)

    def locate_image(self, folder: str, written: str) -> str | None:
        """The path of an image as it was in the commit. If the image has not changed since then, this is its path in
        the working tree, because copying thousands of images would be slow.
        """
        commit, top = self.commit, self.commit.repository.top
        below = os.path.relpath(os.path.join(self.root, folder), self.mirror).replace(os.sep, "/")
        *_, root = followed(below, commit.link)
        *_, inside = followed(os.path.normpath(os.path.join(below, written)).replace(os.sep, "/"), commit.link)
        if inside.split("/")[0] in ("", "..") or not (root == "." or inside.startswith(f"{root}/")):
            return None
        if inside in commit.files:
            blob = commit.files[inside][1]
            here = inside_of(top, inside)
            if here is not None and commit.repository.blob(inside, len(blob)) == blob:
                return here
        elif commit.module(inside) is None:
            return None if inside in self._index() else inside_of(os.path.join(top, root), os.path.join(top, inside))
        return self.locate(os.path.join(folder, written))[1]

    def _index(self) -> dict[str, str]:
        if self.tracked is None:
            self.tracked = self.commit.repository.index()
        return self.tracked

    def _put(self, inside: str, path: str, commit: Commit | None = None) -> str:
        """Copy a file or folder of a commit to `path`, and return `path`. If the commit does not have it, return its
        path in the working tree.

        `commit` is the commit of the spec. Only for a path in a submodule, it is the commit of the submodule.
        """
        commit = commit or self.commit
        repository = commit.repository
        *_, inside = followed(inside, commit.link)
        module = commit.module(inside)
        if module is not None:
            return self._put(inside[len(module) + 1 :] or ".", path, commit.submodule(module))
        if inside in commit.files:
            data = commit.data(inside) or b""
            found = pointer(data)
            stored = None if found is None else stored_file(repository, inside, *found)
            if stored == os.path.join(repository.top, inside):
                return stored
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if stored is not None:
                shutil.copyfile(stored, path)
                return path
            with open(path, "wb") as handle:
                handle.write(data)
            return path
        below = commit.folder(inside)
        if not below and not repository.git("--literal-pathspecs", "ls-files", "--", inside):
            return os.path.join(repository.top, inside)
        commit.read(*below)
        for one in below:
            copy = os.path.join(path, os.path.relpath(one, inside))
            self.paths[os.path.relpath(copy, self.mirror).replace(os.sep, "/")] = self._put(one, copy, commit)
        return path


@contextmanager
def snapshot(commit: Commit) -> Iterator[Callable[[str], tuple[bytes, str, Workspace]]]:
    """Yield a function that opens a spec of the commit: it takes the spec's path and returns its bytes, its name and
    its workspace.

    All these specs share one temporary folder. The function raises UsageError if the commit does not have the spec.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="xpc-") as mirror:
        mirror = os.path.realpath(mirror)
        paths: dict[str, str] = {}

        def opened(inside: str) -> tuple[bytes, str, Workspace]:
            data = commit.data(inside)
            if data is None:
                raise UsageError(f"`{inside}` is not in {commit.hash[:12]}")
            root = os.path.join(mirror, os.path.dirname(inside)).rstrip("/")
            os.makedirs(root, exist_ok=True)
            space = RevisionWorkspace(root, commit=commit, mirror=mirror, paths=paths)
            if f"{inside}.lock" in commit.files:  # the lock of the commit is used, and not one in the working tree
                space.lock = os.path.basename(inside) + ".lock"
            return data, os.path.basename(inside), space

        yield opened


@contextmanager
def at_revision(written: str) -> Iterator[tuple[bytes, str, Workspace]]:
    """Yield the bytes, the name and the workspace of the spec `REV:file`; the file is relative to the working
    directory.

    Raises UsageError if there is no such revision or file.
    """
    revision, _, path = written.partition(":")
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    repository = find(folder)
    if repository is None:
        raise UsageError(f"{written}: {folder} is not in a git repository")
    hash = repository.commit(revision)
    if hash is None:
        raise UsageError(f"{written}: `{revision}` is not a revision")
    inside = repository.inside(path)
    commit = Commit.of(repository, hash)
    if inside not in commit.files:
        raise UsageError(f"{written}: `{inside}` is not in {revision}")
    with snapshot(commit) as opened:
        yield opened(inside)


def is_revision(written: str) -> bool:
    """Whether an argument has the form REV:FILE and is not itself an existing path."""
    revision, colon, path = written.partition(":")
    with suppress(OSError, ValueError):
        return bool(colon and revision and path) and not os.path.exists(written)
    return False
