"""Small JSON files in a folder that only the user can write to, such as ``~/.cache/xpc/data``. Standard library only.

The compiler also stores its entries with these functions. Each file in the folder is an entry. The folder stays open
while it is used, and must not be a link. Only regular files that belong to the user are read.
"""

import json
import os
import stat

LARGEST = 2**20
"""An entry (a file of the cache) may have at most this many bytes."""


def opened(folder: str, make: bool = False) -> int:
    """Open a folder of entries and return its file descriptor. With ``make``, a missing folder is created.

    The last two folders of the path (`xpc/data`) must not be links. A folder above them may be a link, because many
    people link `~/.cache`. Raises OSError if there is no such folder, or if other users can write to it.
    """
    above, kind = os.path.split(folder)
    base, ours = os.path.split(above)
    if make:
        os.makedirs(base, mode=0o700, exist_ok=True)
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    for name in (ours, kind):
        outer = descriptor
        try:
            if make:
                try:  # noqa: SIM105 - importing contextlib costs more than reading an entry
                    os.mkdir(name, 0o700, dir_fd=outer)
                except FileExistsError:
                    pass
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
        finally:
            os.close(outer)
    if not _is_private(os.fstat(descriptor)):
        os.close(descriptor)
        raise PermissionError(folder)
    return descriptor


def _is_private(found: os.stat_result) -> bool:
    """Whether only the user can write to the folder or file."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def read(folder: str, name: str) -> object:
    """Read a JSON file of the cache. Raises OSError, ValueError or RecursionError if it cannot be read."""
    descriptor = opened(folder)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(name, flags, dir_fd=descriptor), encoding="utf-8") as handle:
            found = os.fstat(handle.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_private(found) or found.st_size > LARGEST:
                raise ValueError("not an entry")
            return json.loads(handle.read(LARGEST))
    finally:
        os.close(descriptor)


def write(folder: int, name: str, text: str) -> None:
    """Write a file of the cache into the folder with the file descriptor ``folder``. Raises OSError."""
    temporary = f"{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as handle:
            handle.write(text)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        # the entry is incomplete: this write failed, or a process with the same id was killed while it wrote
        if stat.S_ISREG(os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(temporary, dir_fd=folder)
        raise
