"""Remember the digests of large files, so that a later start need not read them again. Standard library only.

The entries are in ``~/.cache/xpc/data``; ``xpc compile`` and ``xpc verify`` read them, too. With ``XPC_CACHE=off``,
there are no entries. An entry is used only while the file's size, times and inode are unchanged. The folder and its
entries must be private: if other users can write to them, they are neither read nor written.
"""

import json
import os
import time
from hashlib import sha256
from typing import Any

from ...core.cache_folders import private_folder
from . import private_entries

SETTLED = 2.0
"""A digest is remembered only if its file was last changed more than this many seconds ago. File systems store times
coarsely: a second change soon after the first may leave the same time."""
KIND = "sha256"


def stamp(path: str) -> str:
    """The size, times, inode and device of a file. Raises OSError."""
    found = os.stat(path)
    parts = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
    return ":".join(map(str, parts))


def recall(path: str) -> str | None:
    """The remembered SHA-256 of a file, in hex. None if no digest is remembered, or if the file has changed since."""
    try:
        entry: Any = private_entries.read(_folder(), _name(path))
        same = entry["stamp"] == stamp(path) and KIND in entry["facts"] and isinstance(entry["sha256"], str)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    return str(entry["sha256"]) if same else None


def keep(path: str, before: str, digest: str) -> None:
    """Remember the digest of a file. ``before`` is the file's stamp before it was read. Never raises."""
    try:
        found = os.stat(path)
        if stamp(path) != before or max(found.st_mtime, found.st_ctime) > time.time() - SETTLED:
            return
        folder = private_entries.opened(_folder(), make=True)
        try:
            private_entries.write(
                folder, _name(path), json.dumps({"stamp": before, "sha256": digest, "facts": {KIND: True}})
            )
        finally:
            os.close(folder)
    except OSError:
        pass


def _name(path: str) -> str:
    return sha256(f"{os.path.abspath(path)}\0{KIND}".encode("utf-8", "surrogatepass")).hexdigest()


def _folder() -> str:
    """The folder with the remembered digests. Raises OSError if no private folder can be used."""
    folder = private_folder("data")
    if folder is None:
        raise FileNotFoundError
    return folder
