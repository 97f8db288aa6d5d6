"""Small JSON files that xpc stores for its own use, in a cache folder that only the user can write to.

The folder stays open while it is used. It must not be a link, nor contain links. Each file in it is an entry. Only
regular files that belong to the user are read, and no file other than an entry is deleted. Every command also works
without entries: an entry that cannot be read counts as missing, and an entry that cannot be written is not stored.
"""

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 256
"""Maximum number of entries in a folder."""
LARGEST = 2**20
"""Maximum size of an entry in bytes."""


def private_folder(kind: str) -> str | None:
    """The folder for one kind of entries, `~/.cache/xpc/KIND`; None if XPC_CACHE=off, or if the home folder is
    unknown.
    """
    if os.environ.get("XPC_CACHE") == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "xpc", kind) if os.path.isabs(base) else None


def read(folder: str, name: str) -> dict[str, Any] | None:
    """Read an entry; None if it cannot be read or is not a JSON object."""
    try:
        descriptor = _opened(folder)
        if descriptor is None:
            return None
        try:
            entry = _read(name, descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def write(folder: str, name: str, text: str) -> None:
    """Write an entry, and delete the oldest ones if there are more than MOST. An entry larger than LARGEST is not
    written. Never raises.
    """
    if len(text) > LARGEST:
        return
    try:
        descriptor = _opened(folder, make=True)
        if descriptor is None:
            return
        try:
            _write(name, text, descriptor)
            _prune(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        pass


def _opened(folder: str, make: bool = False) -> int | None:
    """Open the folder and return its file descriptor; None if others can write to it. With `make`, a missing folder is
    created.

    The folders above `xpc` may be links, because many people link `~/.cache`. `xpc` itself and the folders in it must
    not be links.
    """
    above, kind = os.path.split(folder)
    base, ours = os.path.split(above)
    if make:
        os.makedirs(base, mode=0o700, exist_ok=True)
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    for name in (ours, kind):
        if make:
            try:  # noqa: SIM105 - importing contextlib costs more than reading an entry
                os.mkdir(name, 0o700, dir_fd=descriptor)
            except FileExistsError:
                pass
        outer = descriptor
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
        finally:
            os.close(outer)
    if _is_private(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    return None


def _is_private(found: os.stat_result) -> bool:
    """Whether only the user can write to the folder or file."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _read(name: str, folder: int) -> Any:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(descriptor, encoding="utf-8") as handle:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _is_private(found) or found.st_size > LARGEST:
            raise ValueError("not an entry")
        return json.loads(handle.read(LARGEST))


def _write(name: str, text: str, folder: int) -> None:
    temporary = f"{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as handle:
            handle.write(text)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        # the file is incomplete: this write failed, or a process with the same id was killed in the middle of its write
        _remove(temporary, folder)
        raise


def _remove(name: str, folder: int) -> None:
    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)


def _prune(folder: int) -> None:
    """Delete the oldest entries until MOST remain. Parts of entries that killed processes left are deleted, too. Other
    files stay.
    """
    with os.scandir(folder) as inside:
        names = [one.name for one in inside if _is_entry(one.name) and one.is_file(follow_symlinks=False)]
    if len(names) > MOST:
        kept = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name) for name in names)
        for _, name in kept[:-MOST]:
            os.unlink(name, dir_fd=folder)


def _is_entry(name: str) -> bool:
    """Whether a file is an entry, or a part of one. The name of an entry is 64 hexadecimal digits, and the name of a
    part is `DIGITS.PID`.
    """
    hexadecimal, _, number = name.partition(".")
    return len(hexadecimal) == 64 and not hexadecimal.strip("0123456789abcdef") and (not number or number.isdecimal())
