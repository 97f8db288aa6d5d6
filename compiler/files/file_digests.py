"""Compute the SHA-256 of files of any size. A process reads each file once. If reading takes seconds, lines about the
progress are printed.
"""

from __future__ import annotations

import os
import stat
import sys

from xpc.compiler.files import lfs
from xpc.compiler.files.folder_contents import without_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.files.file_memory import FileMemory

BLOCK = 2**22
SHOWN = 4 * 2**30
"""After each further 4 GiB, a line of progress is printed. Reading so many bytes takes a few seconds."""
VERSION = "sha256"
_known: dict[tuple[str, str], str] = {}
"""Maps the path and the stamp (size and times) of a file to its digest, for every digest that this process has
computed.
"""


def file_digest(path: str, memory: FileMemory | None = None, trusted: bool = False) -> str | None:
    """The SHA-256 of a file in hex; None if it cannot be read or is not a regular file.

    The digest is stored in `memory`. With `trusted`, a stored digest is used if the file's size, times and inode are
    unchanged.
    """
    from xpc.compiler.files.file_memory import FileMemory

    before = FileMemory("").stamp(path)
    if before is None:
        return None
    key = (os.path.abspath(path), before[0])
    if key in _known:
        return _known[key]
    if trusted and memory is not None and (recalled := memory.recall(path, VERSION, VERSION)) is not None:
        return recalled[0]
    digest = _read(path)
    if digest is not None:
        _known[key] = digest
        if memory is not None:
            memory.keep(path, before, VERSION, VERSION, digest, True)
    return digest


def size_and_digest(path: str, most: int, memory: FileMemory | None = None) -> tuple[int, str] | None:
    """The size in bytes and the SHA-256 of a regular file of at most `most` bytes; None for other files.

    For a Git LFS pointer, the size and the digest are those of the large file that the pointer stands for. If `memory`
    has the digest, the file is not read.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        if found.st_size <= lfs.MOST:
            with open(path, "rb", opener=without_waiting) as handle:
                pointer = lfs.pointer(handle.read(lfs.MOST + 1) or b"")
            if pointer is not None:
                return pointer[1], pointer[0]
    except (OSError, ValueError):
        return None
    digest = file_digest(path, memory, memory is not None)
    return None if digest is None else (found.st_size, digest)


def show_count(done: int, total: int) -> None:
    """Print a line about the progress of reading many small files."""
    print(f"hashing: {done:,} of {total:,} images", file=sys.stderr, flush=True)


def _read(path: str) -> str | None:
    from hashlib import sha256

    total, done, shown = sha256(), 0, 0
    try:
        with open(path, "rb", opener=without_waiting) as handle:
            status = os.fstat(handle.fileno())
            while block := handle.read(BLOCK):
                total.update(block)
                done += len(block)
                if done - shown >= SHOWN:
                    shown = done
                    size = max(done, status.st_size)
                    # the file's name is not printed, because it may contain escape sequences, which this module cannot
                    # remove
                    print(f"hashing: {done / 2**30:.0f} of {size / 2**30:.0f} GiB", file=sys.stderr, flush=True)
    except OSError:
        return None
    return total.hexdigest()
