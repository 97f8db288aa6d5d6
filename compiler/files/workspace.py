"""The files that a spec names, read through one door so that every byte that decides a bundle is counted and hashed.

`Workspace` is the edge of the pure stages: they ask it for a file by the name written in the spec, relative to the file
that names it, and get bytes or a sentence. Names in results are relative to the spec's folder, never absolute, so a
bundle does not know on which machine it was compiled.
"""

from __future__ import annotations

import os
import stat

from xpc.compiler.files.digest import sha256
from xpc.grammar.record import field, mutable, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpc.compiler.files.file_memory import FileMemory
    from xpc.compiler.files.pins import Lock

MAX_TEXT = 16 * 2**20
"""Largest text (spec, template, config) that is read, bytes."""
MAX_DATA = 64 * 2**20
"""Largest local data file that is copied into a bundle, bytes."""
MOST = 10_000
"""Most files of a data folder."""
HEAD = 2**20
"""What is read of a data file to see the columns of its first row, bytes."""
BASES = (".xp",)
OURS = (*BASES, ".jinja", ".jinja2", ".j2")
"""Endings of files that are written for a training run and for nothing else."""
TEXTS = (*OURS, ".txt", ".md", ".json", ".jsonl", ".yaml", ".yml", ".py", ".csv", ".tsv", ".parquet", ".arrow")
"""Endings of files that a spec may name out of its own folder: keys and passwords have none of them."""

DATA_FORMATS = (".jsonl", ".json", ".csv", ".parquet", ".txt")
"""Endings of files of rows; the first row of each says what its columns are."""
READ_ROWS = (".jsonl", ".json", ".csv", ".txt")
"""Endings of those whose rows are all read here (compiler/data/reader.py)."""
TASK_ROWS = (*DATA_FORMATS, ".tsv", ".arrow")
"""Endings of the rows of a task of lm-evaluation-harness."""


@record
class Read:
    """A file that was read: the name it is known by, its bytes and their SHA-256 in hex."""

    name: str
    data: bytes = field(repr=False)
    digest: str


@mutable
class Workspace:
    """Files relative to `root`, the folder of the spec.

    `located` has the names of all files that were asked for; `reads` maps those that were read to their digests.
    `memory` keeps the surveys of data files for later commands; None reads every file. Where a bundle `copies` a data
    file it is read in any case. One that is too large to copy is read for its digest if `hashes` is set.
    `lock` is the name of the spec's lock, which need not be there, and `pins` what it holds; `named` is the file that
    the spec of a bundle was compiled from. With `allow_oom` a run that does not fit its GPUs is noted, and is no error.
    The members of a sweep share `answers`, so that each file is read once for all; each has `reads` of its own.
    """

    root: str
    located: set[str] = field(factory=set)
    reads: dict[str, str] = field(factory=dict)
    memory: FileMemory | None = None
    copies: bool = True
    hashes: bool = False
    lock: str = ""
    pins: Lock | None = None
    allow_oom: bool = False
    named: str = ""
    answers: dict[tuple[str, str, int], Read | str] | None = None

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """The name and the path of a file written in `base` (a name relative to the root)."""
        if os.path.isabs(written):
            return written, written
        name = os.path.normpath(os.path.join(os.path.dirname(base), written)).replace(os.sep, "/")
        self.located.add(name)
        return name, os.path.join(self.root, name)

    def read_beside(
        self, written: str, base: str, endings: tuple[str, ...] = TEXTS, limit: int = MAX_TEXT
    ) -> Read | str:
        """A file named by `file("x")` or `extends "x"`, which are relative to the file `base` that says so.

        An absolute path is refused: what it names goes into the bundle, and differs from machine to machine. So is what
        is no text of a training run and lies elsewhere (`astray`).
        """
        if os.path.isabs(written):
            return f"`{_shown(written)}` is an absolute path"
        return self.astray(written, base, endings) or self.read(written, base, limit)

    def astray(self, written: str, base: str = "", endings: tuple[str, ...] = TEXTS) -> str:
        """Why a file out of the spec's folder, by its name or by a link, is not taken; nothing where it is.

        A spec may come from anybody, and what it names is copied into a bundle that others can read, or quoted in a
        diagnostic: `../../.ssh/id_ed25519` and a link to it are not followed. Templates and bases of a folder beside
        the spec's are.
        """
        if "\0" in written:
            return ""  # refused where it is read
        home, path = os.path.realpath(self.root), os.path.realpath(self.locate(written, base)[1])
        above = os.path.commonpath((home, path))
        if above == home:
            return ""
        name = path.lower()
        if not name.endswith(endings):
            return (
                f"`{_shown(written)}` lies outside of the spec's folder, and does not end in {' or '.join(endings[:4])}"
            )
        if not name.endswith(OURS) and any(part.startswith(".") for part in os.path.relpath(path, above).split(os.sep)):
            return f"`{_shown(written)}` lies in a hidden folder, outside of the spec's"
        return ""

    def read(self, written: str, base: str = "", limit: int = MAX_TEXT) -> Read | str:
        """The file's bytes, or a sentence that says why not."""
        answers = {} if self.answers is None else self.answers
        key = (written, base, limit)
        if key not in answers:
            answers[key] = self._read(written, base, limit)
        found = answers[key]
        if isinstance(found, Read):
            self.reads[found.name] = found.digest
        return found

    def _read(self, written: str, base: str, limit: int) -> Read | str:
        if "\0" in written or not written.strip():
            return "the name of a file cannot be empty or hold NUL"
        name, path = self.locate(written, base)
        try:
            kind = os.stat(path).st_mode
            if not stat.S_ISREG(kind):  # nor opened: some devices do something then
                return f"`{_shown(written)}` is {'a folder' if stat.S_ISDIR(kind) else 'not a regular file'}"
            with open(path, "rb", opener=_without_waiting) as handle:
                size = os.fstat(handle.fileno()).st_size
                data: bytes | None = handle.read(limit + 1) if size <= limit else b""
            if data is None:
                return f"`{_shown(written)}` has nothing to read"
            if len(data) > limit or size > limit:  # files of /proc have size 0
                return f"`{_shown(written)}` is larger than {limit // 2**20} MiB"
        except FileNotFoundError:
            return f"`{_shown(written)}` is not there"
        except (OSError, ValueError) as error:
            return f"`{_shown(written)}` cannot be read ({getattr(error, 'strerror', None) or error})"
        return Read(name, data, sha256(data).hexdigest())

    def kind(self, written: str, base: str = "") -> str:
        """`file`, `folder` or `` for nothing there."""
        if "\0" in written:
            return ""
        _, path = self.locate(written, base)
        try:
            return "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else ""
        except (OSError, ValueError):
            return ""

    def other_kind(self, written: str) -> str:
        """What is there, where it is neither a file nor a folder; an empty text where nothing is."""
        if "\0" in written:
            return ""
        try:
            there = os.lstat(self.locate(written)[1]).st_mode
        except (OSError, ValueError):
            return ""
        return "is a link to what is not there" if stat.S_ISLNK(there) else "is not a regular file"

    def resembling(self, written: str, base: str = "") -> str | None:
        """The file or folder beside one that is not there whose name is most like it. Nothing out of the spec's folder
        is told: a spec may come from anybody, and its diagnostics be read by others."""
        from xpc.grammar.nearest import nearest  # only a wrong spec pays for it

        folder, slash, name = written.rpartition("/")
        place = os.path.realpath(self.locate(folder or ".", base)[1])
        home = os.path.realpath(self.root)
        if "\0" in written or os.path.commonpath((place, home)) != home:
            return None
        try:
            names = [one for one in os.listdir(place) if not one.startswith(".")]
        except OSError:
            return None
        stems = {os.path.splitext(one)[0]: one for one in sorted(names)[:MOST]}  # most rows end in `.jsonl`
        near = nearest(os.path.splitext(name)[0], stems)
        return None if near is None else folder + slash + stems[near]

    def help_for(self, written: str, base: str = "", relative_to: str = "the spec") -> str:
        """What to say of a file that is not read."""
        near = None if self.kind(written, base) else self.resembling(written, base)
        return f"the path is relative to {relative_to}" if near is None else f'name `"{near}"`, which is here'

    def walk(self, written: str) -> list[str] | str:
        """The files below a folder by their names in it, sorted, without what is hidden; or why they are not read.

        A link to a folder is refused: what is behind it may be anything, or the folder itself. So is a folder that the
        spec lies in: bundles and whatever else stands there are no rows, and `..` may be somebody's home.
        """
        _, path = self.locate(written)
        place = os.path.realpath(path)
        if os.path.commonpath((place, os.path.realpath(self.root))) == place:
            return f"`{_shown(written)}` holds the spec itself"
        found: list[str] = []
        for where, folders, names in os.walk(path):
            folders[:] = sorted(one for one in folders if not one.startswith((".", "__")))
            inside = os.path.relpath(where, path).replace(os.sep, "/")
            prefix = "" if inside == "." else inside + "/"
            for one in folders:
                if os.path.islink(os.path.join(where, one)):
                    return f"`{_shown(written)}/{_shown(prefix + one)}` is a link to a folder"
            found += [prefix + name for name in names if not name.startswith(".")]
            if len(found) > MOST:
                return f"`{_shown(written)}` holds more than {MOST:,} files"
        return sorted(found)

    def digest(self, written: str) -> str | None:
        """The SHA-256 of a file of any size, in hex; None where it cannot be read, and where no bundle states it: a
        check need not wait for it."""
        if not self.hashes:
            return None
        from hashlib import file_digest

        name, path = self.locate(written)
        try:
            with open(path, "rb", opener=_without_waiting) as handle:
                digest = file_digest(handle, "sha256").hexdigest()
        except OSError:
            return None
        self.reads[name] = digest
        return digest

    def size(self, written: str) -> int:
        """Bytes of a file that is there."""
        return os.path.getsize(self.locate(written)[1])

    def head(self, written: str) -> bytes:
        """The first MiB of a local data file, to see the columns of its first row."""
        with open(self.locate(written)[1], "rb", opener=_without_waiting) as handle:
            return handle.read(HEAD) or b""  # None: a file that would have to be waited for

    def tail(self, written: str, count: int) -> bytes:
        """The last bytes of a local data file whose head was read."""
        with open(self.locate(written)[1], "rb", opener=_without_waiting) as handle:
            handle.seek(-min(count, os.fstat(handle.fileno()).st_size), os.SEEK_END)
            return handle.read(count) or b""


def read_whole(path: str, limit: int) -> bytes:
    """The file that a command line names, without waiting for one that never comes.

    /dev/stdin and its like may be pipes, as `<(...)` of a shell makes them; whoever else's pipe or device it is, is
    refused. Raises OSError with a sentence.
    """
    own = path.startswith(("/dev/fd/", "/proc/self/fd/")) or path == "/dev/stdin"
    kind = os.stat(path).st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(21, "Is a directory")
    if not stat.S_ISREG(kind) and not own:
        raise OSError("it is not a regular file")
    with open(path, "rb", opener=None if own else _without_waiting) as handle:
        size = os.fstat(handle.fileno()).st_size
        data: bytes | None = handle.read(limit + 1) if size <= limit else b"\0" * (limit + 1)
        if data is None:
            raise OSError("it has nothing to read")
        if len(data) > limit:
            raise OSError(f"it is larger than {limit // 2**20} MiB")
        return data


def _without_waiting(path: str, flags: int) -> int:
    """Some files look regular and have no end or no beginning (/proc/kmsg): an error is better than waiting for one."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _shown(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "..."


def read_toml(path: str) -> dict[str, Any] | None:
    """A TOML file of a bundle; None where it cannot be read, is none, or is no regular file."""
    import tomllib

    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as handle:
            return tomllib.load(handle)
    except (OSError, ValueError, RecursionError):
        return None
