"""`REV:file`: a spec as it was in a commit, with the bases, templates and data of that commit.

What the spec names is taken out of git into a temporary folder when it is asked for. A file that git does not know, as
data often is, is the one of the working tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xpc.compiler.files import Workspace
from xpc.compiler.inputs import UsageError
from xpc.grammar.record import field, mutable


@mutable
class RevisionWorkspace(Workspace):
    """The folder of a spec in a commit. `tree` is the working tree, `mirror` where its files of `commit` are put."""

    tree: str = ""
    mirror: str = ""
    commit: str = ""
    there: dict[str, str] = field(factory=dict)

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """As of any workspace, once the file is there."""
        name, path = Workspace.locate(self, written, base)
        inside = os.path.relpath(path, self.mirror).replace(os.sep, "/")
        if os.path.isabs(written) or inside.split("/")[0] == ".." or "\0" in written:
            return name, path
        if inside not in self.there:
            self.there[inside] = self._put(inside, path)
        return name, self.there[inside]

    def _put(self, inside: str, path: str) -> str:
        kind = git(self.tree, "cat-file", "-t", f"{self.commit}:{inside}")
        if kind == b"blob\n":
            data = git(self.tree, "cat-file", "blob", f"{self.commit}:{inside}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as handle:
                handle.write(data or b"")
        elif kind == b"tree\n":
            listed = git(self.tree, "ls-tree", "-r", "-z", "--name-only", f"{self.commit}:{inside}")
            for one in (listed or b"").split(b"\0"):
                if one:
                    below = os.fsdecode(one)
                    self.there[f"{inside}/{below}"] = self._put(f"{inside}/{below}", os.path.join(path, below))
        elif not git(self.tree, "--literal-pathspecs", "ls-files", "--", inside):
            return os.path.join(self.tree, inside)
        return path


def git(folder: str, *arguments: str) -> bytes | None:
    """What git prints, None where it fails. Raises UsageError where there is no git."""
    import subprocess  # a side of most comparisons is no commit

    command = ["git", "-C", folder, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}") from error
    return done.stdout if done.returncode == 0 else None


@contextmanager
def at_revision(written: str) -> Iterator[tuple[bytes, str, Workspace]]:
    """The bytes, the name and the workspace of `REV:file`; the file is relative to the working directory.

    Raises UsageError where there is no such revision or file.
    """
    revision, _, path = written.partition(":")
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    top = git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise UsageError(f"{written}: {folder} is in no git repository")
    commit = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UsageError(f"{written}: `{revision}` is not a revision")
    tree = os.fsdecode(top).rstrip("\n")
    inside = os.path.relpath(os.path.realpath(path), os.path.realpath(tree)).replace(os.sep, "/")
    data = git(tree, "cat-file", "blob", f"{commit.decode().strip()}:{inside}")
    if data is None:
        raise UsageError(f"{written}: `{inside}` is not in {revision}")
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="xpc-") as mirror:
        mirror = os.path.realpath(mirror)
        root = os.path.join(mirror, os.path.dirname(inside)).rstrip("/")
        os.makedirs(root, exist_ok=True)
        space = RevisionWorkspace(root, tree=tree, mirror=mirror, commit=commit.decode().strip())
        if git(tree, "cat-file", "-t", f"{space.commit}:{inside}.lock") == b"blob\n":  # no other commit's
            space.lock = os.path.basename(inside) + ".lock"
        yield data, os.path.basename(inside), space


def is_revision(written: str) -> bool:
    """Whether a side names a file of a commit: what is before the colon is no folder, and no such file is there."""
    revision, colon, path = written.partition(":")
    with suppress(OSError, ValueError):
        return bool(colon and revision and path) and not os.path.exists(written)
    return False
