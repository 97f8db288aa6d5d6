"""The only module that starts git. It reads commits of a repository that may contain files of untrusted authors.

A pull request can add a folder of plain files that git takes for a repository (`HEAD`, `objects/`, `refs/` and a
`config` that names commands). If git is started inside this folder, it runs commands of that config. A commit cannot
contain a folder named `.git`. Therefore this module finds the real repository by walking up to `.git`, and always
passes its path to git.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from threading import Event, Timer

from xpc.compiler.files.file_digests import file_digest
from xpc.compiler.files.folder_contents import read
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review.commit_paths import LONGEST_PATH, below
from xpc.grammar.record import field, mutable, record

SETTINGS = (
    "safe.bareRepository=explicit",
    "protocol.allow=never",
    # "" turns the file monitor off in every version of git; with the value `false`, git before 2.36 starts a program of
    # this name
    "core.fsmonitor=",
    f"core.hooksPath={os.devnull}",
)
"""Settings that git gets on its command line, where they take precedence over all configuration files. Older versions
of git ignore settings that they do not know.
"""
VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",  # overrides `protocol.NAME.allow` in git's configuration files
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # git must ignore refs/replace, which could show other files for a commit
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
KEPT = ("HOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
"""The environment variables that git gets, in addition to PATH. All other variables are dropped, for example access
tokens, and GIT_DIR, which git sets for hooks.
"""
LONGEST_ANSWER = 2**27
"""At most this many bytes of git's output are read. They suffice for about a million paths."""
MOST_FILES = 1_000_000
"""A commit, or the index, may have at most this many files."""
LARGEST_FILE = 2**28
"""A file of a commit is read only if it has at most this many bytes."""
TOTAL = 2**30
"""The files of a commit that are read may together have at most this many bytes."""
SECONDS = 300.0
"""A call of git may take at most this many seconds. Without a limit, git would wait for ever if a file in its folder is
a pipe, as can happen in an archive of a stranger.
"""
POINTER = 4096
"""A file `.git` may have at most this many bytes. It has a single line, `gitdir: PATH`."""


@record
class Repository:
    """A work tree: its top folder and its git folder, both as absolute paths without symbolic links."""

    top: str
    folder: str

    def git(self, *arguments: str, given: bytes = b"", most: int = LONGEST_ANSWER) -> bytes | None:
        """Run git in the top folder with `given` as standard input. Returns its output; None if it fails.

        Raises UsageError if git is not installed, takes too long, or prints more than `most` bytes.

        The subcommand must be one that starts no other program (no filter, no textconv, no external diff), such as
        `cat-file`.
        """
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        # a relative entry of PATH is skipped: `.` may be a folder of the pull request
        path = os.pathsep.join(one for one in folders if os.path.isabs(one))
        program = shutil.which("git", path=path)
        if program is None:
            raise UsageError("git cannot be run: it is not on the PATH")
        command = [program, f"--git-dir={self.folder}", f"--work-tree={self.top}", "--no-pager"]
        for one in SETTINGS:
            command += ["-c", one]
        environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"PATH": path, **VARIABLES}
        answer, status = _answer([*command, *arguments], given, most, self.top, environment)
        if len(answer) > most:
            raise UsageError(f"git's answer about {self.top} is longer than {most // 2**20} MiB, and is not read")
        return answer if status == 0 else None

    def sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        """The sizes of blobs in bytes. A blob that a partial clone lacks is left out."""
        given = "".join(f"{one}\n" for one in blobs).encode()
        answer = self.git("cat-file", "--batch-check=%(objectname) %(objectsize)", given=given) if given else b""
        lines = [line.split(" ") for line in (answer or b"").decode().splitlines()]
        return {one[0]: int(one[1]) for one in lines if len(one) == 2 and one[1].isdecimal()}

    def blob(self, path: str, length: int) -> str:
        """The hash that git would give to a file with its current contents in the working tree. `length` is the number
        of hexadecimal digits. "" if the file cannot be read.
        """
        try:
            data = read(os.path.join(self.top, path))
        except (OSError, ValueError):
            return ""
        total = hashlib.sha256() if length == 64 else hashlib.sha1(usedforsecurity=False)
        total.update(b"blob %d\0" % len(data) + data)
        return total.hexdigest()

    def commit(self, revision: str) -> str | None:
        """The hash of the commit for a revision, such as a branch or a tag. None if there is no such commit."""
        found = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return None if found is None else found.decode().strip()

    def inside(self, path: str) -> str:
        """A path relative to the top folder, as git writes it; `.` for the top folder itself."""
        return os.path.relpath(os.path.realpath(path), self.top).replace(os.sep, "/")

    def prefix(self, folder: str) -> str:
        """The text with which the path of each file in a folder begins, such as `specs/`; "" for the top folder."""
        inside = self.inside(folder)
        return "" if inside == "." else f"{inside}/"

    def from_here(self, path: str) -> str:
        """Convert a path relative to the top folder into a path relative to the working directory."""
        return os.path.relpath(os.path.join(self.top, path))

    def link(self, path: str) -> str | None:
        """The target of a symbolic link in the working tree; None if the path is not a link."""
        try:
            return os.readlink(os.path.join(self.top, path))
        except (OSError, ValueError):
            return None

    def index(self) -> dict[str, str]:
        """Map each tracked file (its path relative to the top folder) to its mode. Raises UsageError if git fails."""
        listed = self.git("ls-files", "--stage", "-z")
        if listed is None:
            raise UsageError(f"git cannot list the files of {self.top}")
        return {path: facts.split(" ")[0] for facts, path in _entries(listed, self.top)}


def _answer(command: list[str], given: bytes, most: int, folder: str, environment: dict[str, str]) -> tuple[bytes, int]:
    """Run a program. Returns the first `most` + 1 bytes of its output, and its exit status. If the output is longer,
    the program is killed. Raises UsageError if the program cannot be started, or takes longer than SECONDS.
    """
    parts, left, late = list[bytes](), most + 1, Event()
    with ExitStack() as opened:
        source = subprocess.DEVNULL
        if given:  # a file and not a pipe: git would block if its output is not read while its input is written
            file = opened.enter_context(TemporaryFile())
            file.write(given)
            file.seek(0)
            source = file.fileno()
        try:
            process = opened.enter_context(subprocess.Popen(
                command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment
            ))  # fmt: skip
        except OSError as error:
            raise UsageError(f"git cannot be run: {error.strerror}") from error
        assert process.stdout is not None

        def stop() -> None:
            late.set()
            process.kill()

        timer = Timer(SECONDS, stop)
        opened.callback(timer.cancel)
        timer.start()
        try:
            while left and (part := process.stdout.read(min(left, 2**20))):
                parts.append(part)
                left -= len(part)
        except BaseException:
            process.kill()
            raise
        if not left:
            process.kill()
        process.wait()
    if late.is_set():
        raise UsageError(f"git took more than {SECONDS:g} seconds to read {folder}, and was stopped")
    return b"".join(parts), process.returncode


LINK = "120000"
"""The mode of a symbolic link. Its blob contains the path of its target."""


@mutable
class Commit:
    """The files of a commit. Names are listed once; contents are read when they are needed.

    `files` maps each path (relative to the top folder) to its mode and the hash of its blob. `modules` maps each
    submodule to its commit. `total` is the size in bytes of all contents that were read. `ordered` are the sorted paths
    of the files; empty until they are needed.
    """

    repository: Repository
    hash: str
    files: dict[str, tuple[str, str]] = field(factory=dict)
    blobs: dict[str, bytes] = field(factory=dict)
    modules: dict[str, str] = field(factory=dict)
    opened: dict[str, Commit] = field(factory=dict)
    sizes: dict[str, int] = field(factory=dict)
    total: int = 0
    ordered: list[str] = field(factory=list)

    @classmethod
    def of(cls, repository: Repository, hash: str) -> Commit:
        """The commit with this hash. Raises UsageError if git cannot list the commit's files."""
        listed = repository.git("ls-tree", "-r", "-z", "--full-tree", hash)
        if listed is None:
            raise UsageError(f"git cannot list the files of {hash}")
        entries = [(facts.split(" "), path) for facts, path in _entries(listed, hash[:12])]
        files = {path: (facts[0], facts[2]) for facts, path in entries if facts[1] == "blob"}
        modules = {path: facts[2] for facts, path in entries if facts[1] == "commit"}
        return cls(repository, hash, files, modules=modules)

    def module(self, path: str) -> str | None:
        """The submodule that contains a path; None if no submodule does. Also None for a path that is longer than any
        file's path can be.
        """
        if not self.modules or len(path) > LONGEST_PATH:
            return None
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        return next((one for one in above if one in self.modules), None)

    def submodule(self, module: str) -> Commit:
        """The commit that is recorded for a submodule. Raises UsageError if this clone does not have that commit."""
        if module not in self.opened:
            location, hash = os.path.join(self.repository.top, module), self.modules[module]
            found = find(location) if os.path.isdir(location) else None
            if found is None or found.top != os.path.realpath(location) or found.commit(hash) is None:
                raise UsageError(
                    f"`{module}` is a submodule, and its commit {hash[:12]} is not in this clone; "
                    "`git submodule update --init` fetches the current one"
                )
            self.opened[module] = Commit.of(found, hash)
        return self.opened[module]

    def link(self, path: str) -> str | None:
        """The target of a symbolic link in the commit; None if the path is not a link."""
        return os.fsdecode(self.data(path) or b"") if self.files.get(path, ("",))[0] == LINK else None

    def folder(self, path: str) -> Sequence[str]:
        """The paths of all files below a folder, relative to the top folder. Paths with `..`, which only a forged tree
        can contain, are left out.
        """
        if not self.ordered:
            self.ordered += sorted(one for one in self.files if ".." not in one.split("/"))
        return below(self.ordered, path)

    def read(self, *paths: str, most: int = LARGEST_FILE) -> None:
        """Load the contents of the files `paths` with two calls of git. A file of more than `most` bytes is left out.

        Raises UsageError if the files that were read so far are too large together.
        """
        wanted = dict.fromkeys(self.files[one][1] for one in paths if one in self.files)
        self.sizes |= self.repository.sizes(one for one in wanted if one not in self.sizes)
        missing = [one for one in wanted if one not in self.blobs and self.sizes.get(one, most + 1) <= most]
        if not missing:
            return
        length = sum(self.sizes[one] for one in missing)
        self.total += length
        if self.total > TOTAL:
            raise UsageError(f"the files of {self.hash[:12]} that specs read have more than {TOTAL // 2**30} GiB")
        answer = self.repository.git(
            "cat-file", "--batch", given="".join(f"{one}\n" for one in missing).encode(),
            most=length + 200 * len(missing),
        )  # fmt: skip
        at = 0
        for name in missing if answer is not None else ():
            assert answer is not None
            end = answer.index(b"\n", at)
            head = answer[at:end].split(b" ")
            at = end + 1
            if len(head) == 3:
                length = int(head[2])
                self.blobs[name] = answer[at : at + length]
                at += length + 1

    def data(self, path: str) -> bytes | None:
        """The contents of a file; None if the commit has no such file.

        Raises UsageError if the file is too large. Also raises UsageError if a partial clone lacks the contents,
        because git must not fetch them here.
        """
        if path not in self.files:
            return None
        self.read(path)
        found = self.blobs.get(self.files[path][1])
        if found is None:
            name = f"{self.hash[:12]}:{path}"
            if self.files[path][1] in self.sizes:
                raise UsageError(f"{name} is larger than {LARGEST_FILE // 2**20} MiB, and is not read")
            raise UsageError(f"the content of {name} is not in this clone; `git show {name}` fetches it")
        return found

    def small(self, path: str, most: int) -> bytes | None:
        """The contents of a file; None if the commit has no such file, or if the file is larger than `most` bytes."""
        self.read(path, most=most)
        known = path in self.files and self.sizes.get(self.files[path][1], 0) <= most
        return self.data(path) if known else None


def stored_file(repository: Repository, path: str, digest: str, size: int) -> str | None:
    """Find the file for which a Git LFS pointer stands, and return its path: the file in the working tree if its digest
    is the pointer's digest, otherwise the copy in LFS's cache. None if neither file exists.
    """
    shared = os.path.join(repository.folder, "commondir")
    folder = repository.folder
    if os.path.isfile(shared):
        with open(shared, encoding="utf-8") as handle:
            folder = os.path.join(folder, handle.read(POINTER).strip())
    for one in (
        os.path.join(repository.top, path),
        os.path.join(folder, "lfs", "objects", digest[:2], digest[2:4], digest),
    ):
        if os.path.isfile(one) and os.path.getsize(one) == size and file_digest(one) == digest:
            return one
    return None


def _entries(listed: bytes, name: str) -> Iterator[tuple[str, str]]:
    """Split git's output into pairs of a text and a path. NUL ends each entry, and a tab separates the text from the
    path. Raises UsageError if there are too many entries.
    """
    if listed.count(b"\0") > MOST_FILES:
        raise UsageError(f"{name} has more than {MOST_FILES:,} files, too many for xpc")
    for one in listed.split(b"\0"):
        facts, tab, path = one.partition(b"\t")
        if tab:
            yield facts.decode(), os.fsdecode(path)


def find(folder: str) -> Repository | None:
    """Find the repository that contains a folder. This function does not call git, because git would accept a folder
    that only looks like a repository.

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


def of_folder(folder: str = ".") -> Repository:
    """The repository that contains a folder. Raises UsageError if there is no repository."""
    repository = find(folder)
    if repository is None:
        raise UsageError(f"{'this folder' if folder == '.' else folder} is not in a git repository")
    return repository


def _pointed_to(path: str) -> str:
    """The git folder whose path a `.git` file contains. Linked worktrees and submodules have such a file in place of a
    folder.
    """
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
    """Whether git would accept a folder as a git folder. In a linked worktree, `refs` and `objects` are in another
    folder, whose path the file `commondir` contains.
    """
    shared = os.path.isfile(os.path.join(folder, "commondir"))
    parts = shared or all(os.path.isdir(os.path.join(folder, one)) for one in ("objects", "refs"))
    return parts and os.path.lexists(os.path.join(folder, "HEAD"))
