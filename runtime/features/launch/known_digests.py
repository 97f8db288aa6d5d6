"""Remember the digests of large files, so that a later start need not read them again. Standard library only.

The entries are shared with ``xpc compile`` and ``xpc verify``, and are in ``~/.cache/xpc/data`` (``XPC_CACHE=off``
turns them off). An entry is used only while the file's size, times and inode are unchanged. The folder and its entries
must be private: if other users can write to them, they are neither read nor written.
"""

import contextlib
import json
import os
import stat
import time
from hashlib import sha256
from typing import Any

SETTLED = 2.0
"""A digest is remembered only if the file is older than this many seconds: file systems store times coarsely, so a
second change within that time might leave the file's times as they are.
"""
LARGEST = 2**20
"""An entry may have at most this many bytes."""
KIND = "sha256"


def stamp(path: str) -> str:
    """The size, times, inode and device of a file. Raises OSError."""
    found = os.stat(path)
    parts = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
    return ":".join(map(str, parts))


def recall(path: str) -> str | None:
    """The remembered SHA-256 of a file, in hex; None if none is remembered, or the file has changed."""
    try:
        folder = _opened(make=False)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(_name(path), flags, dir_fd=folder), encoding="utf-8") as handle:
                found = os.fstat(handle.fileno())
                if not stat.S_ISREG(found.st_mode) or not _is_private(found) or found.st_size > LARGEST:
                    return None
                entry: Any = json.loads(handle.read(LARGEST))
        finally:
            os.close(folder)
        same = entry["stamp"] == stamp(path) and KIND in entry["facts"] and isinstance(entry["sha256"], str)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    return str(entry["sha256"]) if same else None


def keep(path: str, before: str, digest: str) -> None:
    """Remember the digest of a file whose stamp was ``before`` when reading began. Never raises."""
    try:
        found = os.stat(path)
        if stamp(path) != before or max(found.st_mtime, found.st_ctime) > time.time() - SETTLED:
            return
        folder = _opened(make=True)
        try:
            name, temporary = _name(path), f"{_name(path)}.{os.getpid()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(temporary, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as handle:
                handle.write(json.dumps({"stamp": before, "sha256": digest, "facts": {KIND: True}}))
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        pass


def _name(path: str) -> str:
    return sha256(f"{os.path.abspath(path)}\0{KIND}".encode("utf-8", "surrogatepass")).hexdigest()


def _opened(make: bool) -> int:
    """Open the folder of entries. Raises OSError if there is none, or others can write to it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.environ.get("XPC_CACHE") == "off" or not os.path.isabs(base):
        raise FileNotFoundError(base)
    if make:
        os.makedirs(base, mode=0o700, exist_ok=True)
    held = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    for name in ("xpc", "data"):
        outer = held
        try:
            if make:
                with contextlib.suppress(FileExistsError):  # another thread may have created the folder
                    os.mkdir(name, 0o700, dir_fd=outer)
            held = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
        finally:
            os.close(outer)
    if not _is_private(os.fstat(held)):
        os.close(held)
        raise PermissionError(base)
    return held


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
