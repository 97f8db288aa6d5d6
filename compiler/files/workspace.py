"""Read the files that a spec names. One class reads all of them, so the digest of every file that affects a bundle is
known.

The compiler asks a `Workspace` for a file by its name in the spec, which is relative to the file that contains the
name. The `Workspace` returns the contents of the file, or a sentence that says what is wrong. Names in results are
relative to the spec's folder and never absolute, so a bundle is the same on every machine.
"""

from __future__ import annotations

import os
import stat

from xpc.compiler.files.digest import sha256
from xpc.compiler.files.folder_contents import LARGEST, read, walk, without_waiting
from xpc.compiler.files.lfs import pointer
from xpc.grammar.nearest import misspelt_file
from xpc.grammar.record import entity, field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpc.compiler.files.file_memory import FileMemory
    from xpc.compiler.files.pins import Lock

MAX_TEXT = 16 * 2**20
"""The largest size in bytes of a text file (spec, template or config) that is read."""
MAX_DATA = LARGEST
"""The largest size in bytes of a local data file that is copied into a bundle."""
MOST = 10_000
"""The largest number of files that a data folder may contain."""
HEAD = 2**20
"""The number of bytes at the beginning of a data file that are read to find the columns of the first row."""
BASES = (".xp",)
OURS = (*BASES, ".jinja", ".jinja2", ".j2")
"""Endings of specs and templates. If a file is outside of the spec's folder and in a hidden folder, a spec may name it
only with one of these endings.
"""
TEXTS = (*OURS, ".txt", ".md", ".json", ".jsonl", ".yaml", ".yml", ".py", ".csv", ".tsv", ".parquet", ".arrow")
"""Endings of files. Outside of the spec's folder, a spec may name only files with these endings, because files with
keys or passwords have other endings.
"""

HIDDEN = "`{}` lies in a hidden folder, outside of the spec's folder"
DATA_FORMATS = (".jsonl", ".json", ".csv", ".parquet", ".txt")
"""Endings of the data files whose first row is read to find the columns."""
READ_ROWS = (".jsonl", ".json", ".csv", ".txt")
"""Endings of the data files of which the compiler reads every row (compiler/data/reader.py)."""
TASK_ROWS = (*DATA_FORMATS, ".tsv", ".arrow")
"""Endings of the data files that a task of lm-evaluation-harness may read."""


class Unreadable(Exception):
    """Raised if a file or folder of a spec cannot be read. The message is a sentence for a finding."""


@record
class Read:
    """A file that was read: its name in the spec, its bytes and their SHA-256 in hex."""

    name: str
    data: bytes = field(repr=False)
    digest: str

    @property
    def copy(self) -> str:
        """The name of the file's copy in a bundle."""
        return "files/" + bundle_name(self.name, self.digest)


@entity
class Workspace:
    """The files of a spec, relative to `root`, the spec's folder. `evolve` makes a workspace with other options; it
    shares the collections of the first one.

    - `located`: the names of all files that were looked up; `reads`: the digests of the files that were read
    - `memory`: stores counts over data files for later commands; if it is None, every command reads the data files
    - `trusts_memory`: whether the stored digest of a local model's file is used if its size, times and inode are the
      same as before
    - `copies`: whether data files are read because the bundle gets copies of them; a file of more than `most_copied`
      bytes (None: MAX_DATA) is not copied
    - `hashes`: whether a file that is not copied is read to compute its digest
    - `lock`: the name of the spec's lock, which need not exist; `pins`: the contents of the lock
    - `named`: for the spec of a bundle, the file that the bundle was compiled from
    - `allow_oom`: whether a run that does not fit its GPUs is reported as a note instead of an error
    - `most_members`: the number of a sweep's members that are checked; 0 means all
    - `answers`: the results of reads: a file, or why it cannot be read. All members of a sweep share them, so each file
      is read once; each member has its own `reads`
    """

    root: str
    located: set[str] = field(factory=set)
    reads: dict[str, str] = field(factory=dict)
    memory: FileMemory | None = None
    copies: bool = True
    hashes: bool = False
    most_copied: int | None = None
    lock: str = ""
    pins: Lock | None = None
    allow_oom: bool = False
    named: str = ""
    answers: dict[tuple[str, str, int], Read | str] | None = None
    most_members: int = 0
    trusts_memory: bool = False

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """Return a pair for a file whose name stands in the file `base`: its name relative to `root`, and its path."""
        if os.path.isabs(written):
            return written, written
        name = os.path.normpath(os.path.join(os.path.dirname(base), written)).replace(os.sep, "/")
        self.located.add(name)
        return name, os.path.join(self.root, name)

    def locate_image(self, folder: str, written: str) -> str | None:
        """The path of an image that a row names relative to `folder`. None if the image is outside of this folder, or
        if a link leads out of it.
        """
        return inside_of(self.locate(folder)[1], written)

    def read_relative(self, written: str, base: str, endings: tuple[str, ...] = TEXTS, limit: int = MAX_TEXT) -> Read:
        """Read a file that is named by `file("x")` or `extends "x"` in the file `base`. Raises Unreadable.

        An absolute path is refused, because the bundle gets a copy of the file, and another machine may have a
        different file at this path. A file outside the spec's folder is refused, unless its ending is one of `endings`
        (`outside_fault`).
        """
        if os.path.isabs(written):
            raise Unreadable(f"`{_shown(written)}` is an absolute path")
        if fault := self.outside_fault(written, base, endings):
            raise Unreadable(fault)
        return self.read(written, base, limit)

    def outside_fault(self, written: str, base: str = "", endings: tuple[str, ...] = TEXTS) -> str:
        """The reason why a file outside of the spec's folder is refused, or "" if it may be read. A file also counts as
        outside if a link leads to it.

        A spec may come from a stranger. The files that it names are copied into a bundle that others can read, or
        quoted in a diagnostic. Therefore `../../.ssh/id_ed25519` is refused, and a link to this file is refused, too.
        Templates and extended specs in a folder next to the spec's folder are allowed.
        """
        try:
            home, path = os.path.realpath(self.root), os.path.realpath(self.locate(written, base)[1])
        # no file can have this name, which contains NUL or half of a surrogate pair, so `read` refuses it anyway
        except ValueError:
            return ""
        above = os.path.commonpath((home, path))
        if above == home:
            return ""
        name = path.lower()
        if not name.endswith(endings) and written.lower().endswith(endings):
            return f"`{_shown(written)}` is a link to a file with another ending, outside of the spec's folder"
        if not name.endswith(endings):
            return f"`{_shown(written)}` lies outside the spec's folder, and does not end in {' or '.join(endings[:4])}"
        if not name.endswith(OURS) and any(part.startswith(".") for part in os.path.relpath(path, above).split(os.sep)):
            return HIDDEN.format(_shown(written))
        return ""

    def read(self, written: str, base: str = "", limit: int = MAX_TEXT) -> Read:
        """Read a file. Returns its contents and digest. Raises Unreadable."""
        answers = {} if self.answers is None else self.answers
        key = (written, base, limit)
        if key not in answers:
            try:
                answers[key] = self._read(written, base, limit)
            except Unreadable as error:
                answers[key] = str(error)
        found = answers[key]
        if isinstance(found, str):
            raise Unreadable(found)
        self.reads[found.name] = found.digest
        return found

    def _read(self, written: str, base: str, limit: int) -> Read:
        if "\0" in written or not written.strip():
            raise Unreadable("a file name cannot be empty or contain NUL")
        name, path = self.locate(written, base)
        try:
            data = read(path, limit, without_waiting)
        except FileNotFoundError:
            raise Unreadable(f"`{_shown(written)}` is not there") from None
        except IsADirectoryError:
            raise Unreadable(f"`{_shown(written)}` is a folder") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            verb = why.removeprefix("it ")  # `read` raises an OSError such as `it is larger than 16 MiB`
            what = verb if verb != why else f"cannot be read ({why})"
            raise Unreadable(f"`{_shown(written)}` {what}") from None
        if pointer(data) is not None:
            raise Unreadable(f"`{_shown(written)}` is only a pointer of Git LFS; `git lfs pull` downloads the file")
        return Read(name, data, sha256(data).hexdigest())

    def kind(self, written: str, base: str = "") -> str:
        """The kind of an existing path: `file` or `folder`; "" for other kinds, or if nothing exists there."""
        if "\0" in written:
            return ""
        _, path = self.locate(written, base)
        try:
            return "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else ""
        except (OSError, ValueError):
            return ""

    def other_kind(self, written: str) -> str:
        """A phrase that says what a path is if it is neither a file nor a folder, such as a pipe. "" if nothing exists
        there.
        """
        if "\0" in written:
            return ""
        try:
            there = os.lstat(self.locate(written)[1]).st_mode
        except (OSError, ValueError):
            return ""
        return "is a link to a missing file" if stat.S_ISLNK(there) else "is not a regular file"

    def nearest_name(self, written: str, base: str = "") -> str | None:
        """The file or folder that the name of a missing file probably misspells. None if there is none.

        Names outside the spec's folder are never suggested, because a spec may come from anybody and others may read
        its diagnostics. Two kinds of names are never suggested: a name with another ending (not `rows.xp` for
        `rows.jsonl`), and a name with another number or word, because `run-a.xp` and `run-b.xp` are two experiments.
        """
        folder, slash, name = written.rpartition("/")
        location = os.path.realpath(self.locate(folder or ".", base)[1])
        home = os.path.realpath(self.root)
        if "\0" in written or os.path.commonpath((location, home)) != home:
            return None
        try:
            names = [one for one in os.listdir(location) if not one.startswith(".")]
        except OSError:
            return None
        near = misspelt_file(name, sorted(names)[:MOST])
        return None if near is None else folder + slash + near

    def help_for(self, written: str, base: str = "", relative_to: str = "the spec") -> str:
        """The help text for a file that cannot be read."""
        near = None if self.kind(written, base) else self.nearest_name(written, base)
        return f"the path is relative to {relative_to}" if near is None else f'name `"{near}"`, which is here'

    def help_for_base(self, written: str, base: str) -> str:
        """The help text if the path `written`, of data or of a model, exists next to the extended spec `base` that
        contains it, but not next to the spec. "" in all other cases.
        """
        name = self.locate(written, base)[0]
        if name == self.locate(written)[0] or not self.kind(name):
            return ""
        return f'a path in an extended spec is relative to the spec that extends it: write `"{name}"`'

    def walk(self, written: str) -> list[str]:
        """The files below a folder, relative to it and sorted, without hidden files. Raises Unreadable.

        A link to a folder is refused, because it may lead anywhere, even back to a folder that contains the link. A
        folder that contains the spec is also refused: such a folder may also contain bundles, whose files are not rows,
        and `..` may be the user's home folder.
        """
        _, path = self.locate(written)
        location = os.path.realpath(path)
        if os.path.commonpath((location, os.path.realpath(self.root))) == location:
            raise Unreadable(f"`{_shown(written)}` contains the spec itself")
        found: list[str] = []
        for where, folders, names in walk(path):
            folders[:] = sorted(one for one in folders if not one.startswith((".", "__")))
            inside = os.path.relpath(where, path).replace(os.sep, "/")
            prefix = "" if inside == "." else inside + "/"
            for one in folders:
                if os.path.islink(os.path.join(where, one)):
                    raise Unreadable(f"`{_shown(written)}/{_shown(prefix + one)}` is a link to a folder")
            found += [prefix + name for name in names if not name.startswith(".")]
            if len(found) > MOST:
                raise Unreadable(f"`{_shown(written)}` contains more than {MOST:,} files")
        return sorted(found)

    def listed(self, written: str) -> list[str]:
        """The names of the files in a model's folder, relative to this folder. The launch script in the bundle makes
        the same list.
        """
        # imported here, because few specs have a local model
        from xpc.runtime.features.launch.model_folder import files

        return files(self.locate(written)[1])

    def has_tokenizer(self, written: str) -> bool:
        """Whether a model's folder contains a tokenizer. transformers ignores files in subfolders."""
        from xpc.runtime.features.launch.tokenizer_files import has_tokenizer

        return has_tokenizer(name for name in self.listed(written) if "/" not in name)

    def digest(self, written: str) -> str | None:
        """The SHA-256 of a file of any size, in hex. None if the file cannot be read, or if `hashes` is off, as in most
        checks.
        """
        if not self.hashes:
            return None
        from hashlib import file_digest

        name, path = self.locate(written)
        try:
            with open(path, "rb", opener=without_waiting) as handle:
                digest = file_digest(handle, "sha256").hexdigest()
        except OSError:
            return None
        self.reads[name] = digest
        return digest

    def size(self, written: str) -> int:
        """The size of an existing file in bytes."""
        return os.path.getsize(self.locate(written)[1])

    def head(self, written: str) -> bytes:
        """The beginning of a local data file, which contains its first row: the first MiB or, in a .jsonl file with a
        longer first line, this line.
        """
        with open(self.locate(written)[1], "rb", opener=without_waiting) as handle:
            found = handle.read(HEAD) or b""  # `read` returns None if the file would make the process wait for data
            if len(found) == HEAD and b"\n" not in found and written.lower().endswith(".jsonl"):
                found += handle.readline(MAX_DATA)
            return found

    def tail(self, written: str, count: int) -> bytes:
        """The last `count` bytes of a local data file. Call `head` first."""
        with open(self.locate(written)[1], "rb", opener=without_waiting) as handle:
            handle.seek(-min(count, os.fstat(handle.fileno()).st_size), os.SEEK_END)
            return handle.read(count) or b""


def bundle_name(path: str, digest: str) -> str:
    """A safe name for the copy of a file in a bundle. The name contains the first digits of the file's digest: `my
    reward.py` becomes `my_reward-1a2b3c4d.py`.
    """
    stem, dot, ending = path.replace("\\", "/").rpartition("/")[2].rpartition(".")
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in stem or ending)[:40]
    tail = "".join(c for c in ending if c.isascii() and c.isalnum())[:10] if dot else "txt"
    return f"{clean or 'file'}-{digest[:8]}.{tail.lower()}"


def inside_of(folder: str, written: str) -> str | None:
    """The real path of a file below a folder. None if the file is outside of the folder, or if a link
    leads out of it.
    """
    try:
        root, location = os.path.realpath(folder), os.path.realpath(os.path.join(folder, written))
        return location if os.path.commonpath((root, location)) == root else None
    except ValueError:
        return None


def read_file(path: str, limit: int) -> bytes:
    """Read a file that a command line names, at most `limit` bytes of it.

    Pipes and devices are refused, because reading them may wait forever. The exceptions are /dev/stdin and /dev/fd/N,
    which a shell uses for `<(...)`. Raises OSError, whose message is a sentence for the user.
    """
    own = path.startswith(("/dev/fd/", "/proc/self/fd/")) or path == "/dev/stdin"
    return read(path, limit, None if own else without_waiting)


def _shown(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "..."


def read_toml(path: str) -> dict[str, Any] | None:
    """Read a TOML file of a bundle; None if it cannot be read, is not TOML, or is not a regular file."""
    from xpc.compiler.files import bounded_toml  # imported here, because most commands read no TOML

    try:
        return bounded_toml.loads(read(path, MAX_TEXT).decode())
    except (OSError, ValueError, RecursionError):
        return None
