"""The only module that starts git. It reads commits of a repository that may contain files of untrusted authors.

A pull request can add plain files that git takes for a repository (`HEAD`, `objects/`, `refs/` and a `config` that
names commands): started inside such a folder, git reads that config. A commit cannot contain a folder named `.git`. So
this module finds the repository by walking up to `.git`, and always passes it to git.

As a program, `python -I -m xpc.compiler.review.repository FOLDER` prints the tracked specs below a folder, each
terminated by NUL.
"""

from __future__ import annotations

import os
import sys

from xpc.compiler.files.inputs import UsageError
from xpc.grammar.record import record

SETTINGS = (
    "safe.bareRepository=explicit",
    "protocol.allow=never",
    "core.fsmonitor=",  # empty is false in every git; before 2.36, `false` would be the name of a program
    f"core.hooksPath={os.devnull}",
)
"""Settings on the command line, which override every configuration file. A git that does not know one ignores it."""
VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",  # overrides protocol.NAME.allow of a configuration
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
KEPT = ("HOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
"""The only variables, besides PATH, that git inherits: no token, and no GIT_DIR if a hook runs xpc."""
POINTER = 4096
"""Maximum bytes of a `.git` file: a word and a path."""


@record
class Repository:
    """A work tree: its top folder and its git folder, both absolute and without symbolic links."""

    top: str
    folder: str

    def git(self, *arguments: str) -> bytes | None:
        """The output of git, run at the top; None if it fails. Raises UsageError if git is not installed.

        The subcommand must not run filters, textconv or an external diff; `cat-file` does not.
        """
        import shutil
        import subprocess  # most comparisons need no git

        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        path = os.pathsep.join(one for one in folders if os.path.isabs(one))  # `.` may be a folder of the pull request
        program = shutil.which("git", path=path)
        if program is None:
            raise UsageError("git cannot be run: it is not on the PATH")
        command = [program, f"--git-dir={self.folder}", f"--work-tree={self.top}", "--no-pager"]
        for one in SETTINGS:
            command += ["-c", one]
        environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"PATH": path, **VARIABLES}
        try:
            done = subprocess.run(
                [*command, *arguments], capture_output=True, check=False, stdin=subprocess.DEVNULL, cwd=self.top,
                env=environment,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"git cannot be run: {error.strerror}") from error
        return done.stdout if done.returncode == 0 else None

    def commit(self, revision: str) -> str | None:
        """The hash of the commit that a revision names, or None."""
        found = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return None if found is None else found.decode().strip()

    def inside(self, path: str) -> str:
        """A path relative to the top as git writes it, `.` for the top."""
        return os.path.relpath(os.path.realpath(path), self.top).replace(os.sep, "/")

    def below(self, folder: str, names: bytes) -> list[str]:
        """The specs below a folder and outside bundles among git's NUL-separated paths, relative to it and sorted."""
        start = self.inside(folder) + "/"
        start = "" if start == "./" else start
        paths = [os.fsdecode(one) for one in names.split(b"\0") if one.endswith(b".xp") and b".bundle/" not in one]
        return sorted(one.removeprefix(start) for one in paths if one.startswith(start))


def find(folder: str) -> Repository | None:
    """The repository of a folder, found without git, which would accept a folder that only looks like one.

    Raises UsageError if a `.git` file does not name a repository.
    """
    top = os.path.realpath(folder)
    while True:
        path = os.path.join(top, ".git")
        if os.path.isfile(path):
            return Repository(top, _pointed_to(path))
        if _is_repository(path):
            return Repository(top, os.path.realpath(path))
        if os.path.dirname(top) == top:
            return None
        top = os.path.dirname(top)


def _pointed_to(path: str) -> str:
    """The folder named by the `.git` file of a linked worktree or submodule. Git itself follows its `commondir`."""
    try:
        with open(path, "rb") as handle:
            named = os.fsdecode(handle.read(POINTER)).rstrip("\r\n")
        folder = os.path.realpath(os.path.join(os.path.dirname(path), named.removeprefix("gitdir: ")))
        if named.startswith("gitdir: ") and _is_repository(folder):
            return folder
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    raise UsageError(f"{path} does not name a git repository")


def _is_repository(folder: str) -> bool:
    """Whether git accepts a folder as a repository. A linked worktree has its parts where `commondir` says."""
    shared = os.path.isfile(os.path.join(folder, "commondir"))
    parts = shared or all(os.path.isdir(os.path.join(folder, one)) for one in ("objects", "refs"))
    return parts and os.path.lexists(os.path.join(folder, "HEAD"))


def tracked(folder: str) -> list[str]:
    """The tracked specs below a folder, relative to the working directory. Raises UsageError."""
    repository = find(folder)
    if repository is None:
        raise UsageError(f"{folder} is not in a git repository")
    listed = repository.git("ls-files", "-z")
    if listed is None:
        raise UsageError(f"git cannot list the files of {repository.top}")
    place = os.path.realpath(folder)
    return [os.path.relpath(os.path.join(place, one)) for one in repository.below(folder, listed)]


def main(folder: str) -> int:
    """Print the tracked specs below a folder. Returns status 2 if git fails."""
    from xpc.compiler.render.visible import visible

    try:
        found = tracked(folder)
    except UsageError as error:
        print(visible(f"xpc: {error}"), file=sys.stderr)
        return 2
    sys.stdout.buffer.write(b"".join(os.fsencode(one) + b"\0" for one in found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
