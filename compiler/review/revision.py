"""Read `REV:file`, a spec as it was in a commit. The specs that it extends, its templates and its data also come from
that commit.

When a file of the spec is read, it is first copied from git into a temporary folder. A file that is not in git, such as
large data, is read from the working tree.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.lfs import pointer
from xpc.compiler.files.workspace import Workspace, inside_of
from xpc.compiler.review.commit_paths import below, followed
from xpc.compiler.review.repository import Commit, Repository, find, stored_file
from xpc.grammar.record import entity, field
from xpc.runtime.features.launch.model_folder import LEVELS


@entity
class RevisionWorkspace(Workspace):
    """The workspace of a spec in a commit. Files of the commit are copied into the temporary folder `mirror`.

    `paths` maps a path, relative to the top folder, to the file that is read instead: a copy in `mirror`, or the file
    in the working tree. If a symbolic link leads to a folder, the folder's path ends with a slash. `tracked` maps the
    top folder of a repository to the sorted names of the files in git's index; it has the indexes that were read so
    far.
    """

    commit: Commit = field(kw_only=True)
    mirror: str = ""
    paths: dict[str, str] = field(factory=dict)
    tracked: dict[str, list[str]] = field(factory=dict)

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """Return the name and the path of a file that the spec names. A file of the commit is first copied from git."""
        name, path = Workspace.locate(self, written, base)
        inside = os.path.relpath(path, self.mirror).replace(os.sep, "/")
        if os.path.isabs(written) or inside.split("/")[0] == ".." or "\0" in written:
            return name, path
        if inside not in self.paths:
            self.paths[inside] = self._put(inside, path)
        return name, self.paths[inside]

    def locate_image(self, folder: str, written: str) -> str | None:
        """The path of an image as it was in the commit. For an image that has not changed since the commit, this is the
        path in the working tree, because copying thousands of images would be slow.
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
            if self._tracks(commit.repository, inside):
                return None
            return inside_of(os.path.join(top, root), os.path.join(top, inside))
        return self.locate(os.path.join(folder, written))[1]

    def _tracks(self, repository: Repository, path: str) -> bool:
        """Whether git's index has a file, or a file below a folder."""
        if repository.top not in self.tracked:
            self.tracked[repository.top] = sorted(repository.index())
        names = self.tracked[repository.top]
        at = bisect_left(names, path)
        return names[at : at + 1] == [path] or bool(below(names, path))

    def _put(self, inside: str, path: str, place: tuple[Commit, str] | None = None) -> str:
        """Copy a file or folder of a commit to `path`, and return `path`. If git tracks no such file or folder, or if a
        Git LFS file is unchanged, return its path in the working tree.

        `place` is a pair: a commit, and the folder that gets the copies of the commit's files. The default is the
        commit of the spec, and `mirror`. For a path in a submodule, it is the commit and the folder of the submodule.
        """
        commit, root = place or (self.commit, self.mirror)
        repository = commit.repository
        *_, inside = followed(inside, commit.link)
        module = commit.module(inside)
        if module is not None:
            own = commit.submodule(module), os.path.join(root, module)
            return self._put(inside[len(module) + 1 :] or ".", path, own)
        if inside in commit.files:
            return self._put_file(inside, path, commit)
        names = commit.folder(inside)
        if not names and not self._tracks(repository, inside):
            return os.path.join(repository.top, inside)
        self._put_files(inside, path, names, (commit, root))
        return path

    def _put_file(self, inside: str, path: str, commit: Commit) -> str:
        data = commit.data(inside) or b""
        found = pointer(data)
        stored = None if found is None else stored_file(commit.repository, inside, *found)
        if stored == os.path.join(commit.repository.top, inside):
            return stored
        if self._make_room(path):
            if stored is not None:
                shutil.copyfile(stored, path)
            else:
                with open(path, "wb") as handle:
                    handle.write(data)
        return path

    def _put_files(self, folder: str, path: str, names: Sequence[str], place: tuple[Commit, str]) -> None:
        """Copy the files of a folder. A symbolic link to a folder becomes a link to the copy of that folder, because
        copying through a link to a folder above it would never end. For a file that `_put` does not copy, create a link
        to the path that `_put` returns.
        """
        place[0].read(*names)
        for one in names:
            copy = os.path.join(path, os.path.relpath(one, folder))
            found = self._linked_folder(one, place) or self._put(one, copy, place)
            self.paths[os.path.relpath(copy, self.mirror).replace(os.sep, "/")] = found
            if found != copy and not os.path.lexists(copy) and self._make_room(copy):
                os.symlink(found, copy)

    def _linked_folder(self, name: str, place: tuple[Commit, str]) -> str | None:
        """If `name` is a link to a folder of the same commit, copy the files of the folder, at most LEVELS deep, and
        return the path of the copy. Otherwise None.
        """
        commit, root = place
        if commit.link(name) is None:
            return None
        *_, target = followed(name, commit.link)
        path = os.path.normpath(os.path.join(root, target))
        key = os.path.relpath(path, self.mirror).replace(os.sep, "/") + "/"
        if key not in self.paths:
            names = [] if target in commit.files or target.split("/")[0] in ("", "..") else commit.folder(target)
            if not names:
                return None
            self.paths[key] = path
            start = 0 if target == "." else len(target) + 1
            self._put_files(target, path, [one for one in names if one.count("/", start) < LEVELS], place)
        return path

    def _make_room(self, path: str) -> bool:
        """Make the folder of a new file in `mirror`, and remove a link in the place of the file. Returns False if the
        folder would lie outside of `mirror`: a forged tree can contain files below a link.
        """
        folder = os.path.dirname(path)
        if inside_of(self.mirror, folder) is None:
            return False
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(path):
            os.unlink(path)
        return True


@contextmanager
def snapshot(commit: Commit) -> Iterator[Callable[[str], tuple[bytes, str, Workspace]]]:
    """Yield a function that opens a spec of the commit: it takes the spec's path and returns its bytes, its name and
    its workspace.

    All these specs share one temporary folder. The function raises UsageError if the commit does not have the spec.
    """
    with TemporaryDirectory(prefix="xpc-") as mirror:
        mirror = os.path.realpath(mirror)
        paths: dict[str, str] = {}

        def opened(inside: str) -> tuple[bytes, str, Workspace]:
            *_, target = followed(inside, commit.link)
            data = commit.data(target)
            if data is None:
                raise UsageError(f"`{inside}` is not in {commit.hash[:12]}")
            root = os.path.join(mirror, os.path.dirname(inside)).rstrip("/")
            os.makedirs(root, exist_ok=True)
            name = os.path.basename(inside)
            # use the lock of the commit, not the lock in the working tree
            lock = f"{name}.lock" if f"{inside}.lock" in commit.files else ""
            return data, name, RevisionWorkspace(root, lock=lock, commit=commit, mirror=mirror, paths=paths)

        yield opened


@contextmanager
def at_revision(written: str) -> Iterator[tuple[bytes, str, Workspace]]:
    """Yield the bytes, the name and the workspace of the spec `REV:file`; the file is relative to the working
    directory.

    Raises UsageError if there is no such revision or file.
    """
    revision, _, path = written.partition(":")
    repository, inside = _located(path)
    if repository is None:
        raise UsageError(f"{written}: {os.path.dirname(inside)} is not in a git repository")
    hash = repository.commit(revision)
    if hash is None:
        raise UsageError(f"{written}: `{revision}` is not a revision")
    commit = Commit.of(repository, hash)
    *_, target = followed(inside, commit.link)
    if target not in commit.files:
        raise UsageError(f"{written}: `{inside}` is not in {revision}")
    with snapshot(commit) as opened:
        yield opened(inside)


def _located(path: str) -> tuple[Repository | None, str]:
    """Return a pair: the repository that contains the file `path`, and the path relative to the repository's top
    folder. If there is no repository, return None and the absolute path.

    Links inside the repository are not followed, because the links in the working tree may differ from the links in the
    commit: if `a.xp` is a link to `b.xp` now, `main:a.xp` is still the file `a.xp` of `main`.
    """
    inside = absolute = os.path.abspath(path)
    repository = None
    for count in range(1, absolute.count(os.sep) + 1):
        folder = absolute.split(os.sep, count)
        top = os.sep.join(folder[:-1]) or os.sep
        if repository is not None and os.path.islink(top):
            break
        if os.path.lexists(os.path.join(top, ".git")):
            found = find(top)
            if found is not None and found.top == os.path.realpath(top):
                repository, inside = found, folder[-1].replace(os.sep, "/")
    return repository, inside


def is_revision(written: str) -> bool:
    """Whether an argument has the form REV:FILE and is not itself an existing path."""
    revision, colon, path = written.partition(":")
    with suppress(OSError, ValueError):
        return bool(colon and revision and path) and not os.path.exists(written)
    return False
