"""`REV:file`: a spec as it was in a commit, with the bases, templates and data of that commit.

Files that the spec names are copied from git into a temporary folder when they are read. A file that is not in git,
such as data, is read from the working tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.review.repository import Repository, find
from xpc.grammar.record import field, mutable


@mutable
class RevisionWorkspace(Workspace):
    """The folder of a spec in a commit. `mirror` is the temporary folder for the files of `commit`."""

    repository: Repository = field(kw_only=True)
    mirror: str = ""
    commit: str = ""
    paths: dict[str, str] = field(factory=dict)

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """As in any workspace, after copying the file from git."""
        name, path = Workspace.locate(self, written, base)
        inside = os.path.relpath(path, self.mirror).replace(os.sep, "/")
        if os.path.isabs(written) or inside.split("/")[0] == ".." or "\0" in written:
            return name, path
        if inside not in self.paths:
            self.paths[inside] = self._put(inside, path)
        return name, self.paths[inside]

    def _put(self, inside: str, path: str) -> str:
        git = self.repository.git
        kind = git("cat-file", "-t", f"{self.commit}:{inside}")
        if kind == b"blob\n":
            data = git("cat-file", "blob", f"{self.commit}:{inside}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as handle:
                handle.write(data or b"")
        elif kind == b"tree\n":
            listed = git("ls-tree", "-r", "-z", "--name-only", f"{self.commit}:{inside}")
            for one in (listed or b"").split(b"\0"):
                below = os.fsdecode(one)
                if one and ".." not in below.split("/"):  # a forged tree may contain `..`, and git lists it
                    self.paths[f"{inside}/{below}"] = self._put(f"{inside}/{below}", os.path.join(path, below))
        else:
            _refuse_partial(self.repository, self.commit, inside)
            if not git("--literal-pathspecs", "ls-files", "--", inside):
                return os.path.join(self.repository.top, inside)
        return path


def _refuse_partial(repository: Repository, commit: str, inside: str) -> None:
    """Raises UsageError if the commit has the file but a partial clone lacks its content: git is not allowed to fetch
    it here."""
    listed = repository.git("--literal-pathspecs", "ls-tree", "-z", commit, "--", inside) or b""
    if b" blob " in listed.partition(b"\t")[0]:
        name = f"{commit[:12]}:{inside}"
        raise UsageError(f"the content of {name} is not in this clone; `git show {name}` fetches it")


@contextmanager
def at_revision(written: str) -> Iterator[tuple[bytes, str, Workspace]]:
    """The bytes, the name and the workspace of `REV:file`; the file is relative to the working directory.

    Raises UsageError if there is no such revision or file.
    """
    revision, _, path = written.partition(":")
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    repository = find(folder)
    if repository is None:
        raise UsageError(f"{written}: {folder} is not in a git repository")
    commit = repository.commit(revision)
    if commit is None:
        raise UsageError(f"{written}: `{revision}` is not a revision")
    inside = repository.inside(path)
    data = repository.git("cat-file", "blob", f"{commit}:{inside}")
    if data is None:
        _refuse_partial(repository, commit, inside)
        raise UsageError(f"{written}: `{inside}` is not in {revision}")
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="xpc-") as mirror:
        mirror = os.path.realpath(mirror)
        root = os.path.join(mirror, os.path.dirname(inside)).rstrip("/")
        os.makedirs(root, exist_ok=True)
        space = RevisionWorkspace(root, repository=repository, mirror=mirror, commit=commit)
        if repository.git("cat-file", "-t", f"{commit}:{inside}.lock") == b"blob\n":  # the lock of this commit only
            space.lock = os.path.basename(inside) + ".lock"
        yield data, os.path.basename(inside), space


def is_revision(written: str) -> bool:
    """Whether an operand has the form REV:FILE and is not itself an existing path."""
    revision, colon, path = written.partition(":")
    with suppress(OSError, ValueError):
        return bool(colon and revision and path) and not os.path.exists(written)
    return False
