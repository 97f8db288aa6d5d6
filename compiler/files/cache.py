"""What `xpc check` printed for files that have not changed since: answered without importing the compiler.

An entry holds the output, the exit status and every file that decided them: where its name led to, and the digest of
the bytes that were checked (a large data file: its size, times and inode when they were read). The key holds the
arguments, the working directory and the state of the installation, so that neither an upgrade nor an edit of the
compiler can bring an old answer back. Nothing here is needed for a right answer: whatever goes wrong means that the
check runs.

Entries lie in a folder that only the user can write to. It is held open while it is used, links that stand in its place
or in it are not followed, and nothing is deleted there but entries.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Mapping

from xpc.compiler.files.digest import digest, sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGE = 2**20
"""Files above this size are recognised by size and time of change, bytes."""
MOST = 256
"""Entries kept."""
FORMAT = "2"
RECENT = 2.0
"""A large file that changed so many seconds ago may change again within one tick of the file system's clock."""
GONE, FILE, FOLDER, OTHER, ANY, UNSURE = "", "file", "folder", "other", "*", "?"
"""What may stand at a path, beside the digest of a file or the signature of a large one; ANY where only the way to it
was looked at. An answer that depends on what is not sure is not kept."""

Seen = tuple[str, str]
"""Where a path led to, all links followed, and what was found there."""


APART = ("importing", "review", "commands", "locking")
"""Folders of the package that no answer of `check` depends on."""


def folder(kind: str = "check") -> str | None:
    """Where entries of a kind live, or None when caching is off (XPC_CACHE=off)."""
    if os.environ.get("XPC_CACHE") == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "xpc", kind) if os.path.isabs(base) else None


def key(argv: list[str], terminal: bool) -> str:
    """The name of the entry for a command line. Raises OSError where there is no working directory any more."""
    parts = [FORMAT, sys.version, os.getcwd(), str(terminal), *argv, *_installation()]
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _installation() -> list[str]:
    """Every file of the package that an answer can depend on, with its time and size."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    out = []
    parts = ["", "../grammar"]
    for part in parts:
        with os.scandir(os.path.join(here, part)) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".json", ".jinja", ".txt")):
                    stat = entry.stat()
                    out.append(f"{part}/{entry.name}:{stat.st_mtime_ns}:{stat.st_size}")
                elif entry.name[0] != "_" and entry.name not in APART and entry.is_dir():
                    parts.append(os.path.join(part, entry.name))
    return sorted(out)


def signature(found: os.stat_result) -> str:
    """The state of a file that is too large to be read for a comparison."""
    return f"stat:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_ino}:{found.st_dev}"


def state(held: int, before: os.stat_result, data: bytes) -> str:
    """The state of an open file, of which `data` was read from the beginning on. `before` is how it was before that."""
    if before.st_size <= LARGE and len(data) <= LARGE:
        return digest(data)
    after = signature(os.fstat(held))
    if after != signature(before) or time.time() - max(before.st_mtime, before.st_ctime) < RECENT:
        return UNSURE
    return after


def joined(one: Seen, other: Seen) -> Seen:
    """Two looks at one path in one check: what the closer one saw, if they can both be true."""
    near, far = sorted((one, other), key=lambda seen: (seen[1] != ANY, seen[1] not in (FILE, FOLDER)), reverse=True)
    fits = far[1] in (near[1], ANY) or (far[1] == FILE and near[1].startswith(("sha256:", "stat:")))
    fits = fits or (far[1] == FOLDER and near[1].startswith("names:"))
    return (near[0], near[1] if fits and near[0] == far[0] else UNSURE)


def listing(path: str) -> str:
    """The state of a folder of which every name counts."""
    return "names:" + sha256("\0".join(sorted(os.listdir(path))).encode("utf-8", "surrogatepass")).hexdigest()


def still(path: str, seen: Seen) -> bool:
    """Whether a path leads where it led to, and to the same."""
    real, before = seen
    if os.path.realpath(path) != real:
        return False
    if before == ANY:
        return True
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return before == GONE
    if not stat.S_ISREG(found.st_mode):
        if not stat.S_ISDIR(found.st_mode):
            return before == OTHER
        return before == FOLDER or before == listing(path)
    if before.startswith("stat:"):
        return before == signature(found)
    if not before.startswith("sha256:"):
        return before == FILE
    if found.st_size > LARGE:
        return False
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as handle:
        data: bytes | None = handle.read(LARGE + 1)
    return data is not None and digest(data) == before


def _held(where: str, make: bool = False) -> int | None:
    """A folder of entries, opened, or None where it is not the user's alone: an entry is printed as it stands.

    The folders above `xpc` may be links, as people make them of `~/.cache`; `xpc` and what is in it may not.
    """
    above, kind = os.path.split(where)
    base, ours = os.path.split(above)
    if make:
        os.makedirs(base, mode=0o700, exist_ok=True)
    held = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    for name in (ours, kind):
        if make:
            try:  # noqa: SIM105 - importing contextlib costs more than looking an answer up
                os.mkdir(name, 0o700, dir_fd=held)
            except FileExistsError:
                pass
        outer = held
        try:
            held = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
        finally:
            os.close(outer)
    if _ours(os.fstat(held)):
        return held
    os.close(held)
    return None


def _ours(found: os.stat_result) -> bool:
    """Whether nobody else can write to it."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def lookup(name: str) -> tuple[str, int] | None:
    """Output and exit status of an entry whose files are as they were, or None."""
    where = folder()
    entry = None if where is None else read(where, name)
    try:
        if entry is not None and all(still(path, (str(a), str(b))) for path, (a, b) in entry["files"].items()):
            return str(entry["output"]), int(entry["status"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def read(where: str, name: str) -> dict[str, Any] | None:
    """An entry of a folder as it was kept, or None where none can be read."""
    try:
        held = _held(where)
        if held is None:
            return None
        try:
            entry = _read(name, held)
        finally:
            os.close(held)
    except (OSError, ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _read(name: str, folder: int) -> Any:
    held = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(held, encoding="utf-8") as handle:
        found = os.fstat(held)
        if not stat.S_ISREG(found.st_mode) or not _ours(found):
            raise ValueError("somebody else's")
        return json.load(handle)


def store(name: str, files: Mapping[str, Seen], output: str, status: int) -> None:
    """Keep an answer, for the files as they were read."""
    where = folder()
    if where is not None and not any(before == UNSURE for _, before in files.values()):
        keep(where, name, json.dumps({"files": files, "output": output, "status": status}), MOST)


def keep(where: str, name: str, text: str, most: int) -> None:
    """Write an entry, and delete the oldest above `most`. A cache that cannot be written is no error."""
    try:
        held = _held(where, make=True)
        if held is None:
            return
        try:
            _write(name, text, held)
            _prune(held, most)
        finally:
            os.close(held)
    except (OSError, ValueError):
        pass


def _write(name: str, text: str, folder: int) -> None:
    temporary = f"{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as handle:
            handle.write(text)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(temporary, folder)  # half an entry, of this process or of a killed one with its number
        raise


def _remove(name: str, folder: int) -> None:
    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)


def _prune(folder: int, most: int) -> None:
    """Delete the oldest entries, and what killed processes left of some; nothing else, whatever it is doing there."""
    with os.scandir(folder) as inside:
        names = [one.name for one in inside if _is_entry(one.name) and one.is_file(follow_symlinks=False)]
    if len(names) > most:
        kept = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name) for name in names)
        for _, name in kept[:-most]:
            os.unlink(name, dir_fd=folder)


def _is_entry(name: str) -> bool:
    """Whether a name is one of ours: 64 hexadecimal digits, while it is written with the number of the process."""
    hexadecimal, _, number = name.partition(".")
    return len(hexadecimal) == 64 and not hexadecimal.strip("0123456789abcdef") and (not number or number.isdecimal())
