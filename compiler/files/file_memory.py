"""Store facts that were computed from the contents of a file, such as counts over the rows of a data file, for later
commands.

An entry is used only if the file has the same size, times of change and inode as when it was read. For a file that was
changed within the last two seconds, nothing is stored: a second change in the same tick of the file system's clock
would not change the file's times. An entry only saves time: without it, a command reads the file.
"""

from __future__ import annotations

import json
import os
import stat
import time

from xpc.compiler.files.digest import sha256
from xpc.compiler.files.private_folder import private_folder, read, write
from xpc.grammar.record import entity

SETTLED = 2.0
"""A fact is not stored if the file was changed less than this many seconds ago. Some file systems record the same time
for two changes within this period, so the second change could not be noticed.
"""
FACTS = 16
"""Maximum number of facts that are stored about one file."""
Stamp = tuple[str, float]
"""Two values that identify the state of a file: its size, times, inode and device as one text, and the time of its last
change in seconds since the epoch.
"""


@entity
class FileMemory:
    """Facts about files. They are stored in `folder`, which is created when the first fact is stored.

    A fact is plain JSON. Its key consists of the path of the file, a `key`, and the `version` of the code that computed
    the fact.
    """

    folder: str

    def stamp(self, path: str) -> Stamp | None:
        """The current stamp of a regular file: its size, times and inode. None for other files."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        parts = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
        return ":".join(map(str, parts)), max(found.st_mtime, found.st_ctime)

    def recall(self, path: str, version: str, key: str) -> tuple[str, object] | None:
        """Return the digest of the file and the stored fact. None if nothing is stored, or if the file has changed
        since then.
        """
        now = self.stamp(path)
        entry = None if now is None else read(self.folder, _name(path, version))
        if entry is None or now is None or entry.get("stamp") != now[0]:
            return None
        digest, facts = entry.get("sha256"), entry.get("facts")
        return (digest, facts[key]) if isinstance(digest, str) and isinstance(facts, dict) and key in facts else None

    def keep(self, path: str, before: Stamp | None, version: str, key: str, digest: str, fact: object) -> None:
        """Store a fact about a file. `before` is the stamp of the file at the time when reading began. If the file has
        changed since, nothing is stored. Never raises.
        """
        if before is None or self.stamp(path) != before or before[1] > time.time() - SETTLED:
            return
        name = _name(path, version)
        entry = read(self.folder, name) or {}
        facts = entry.get("facts") if entry.get("stamp") == before[0] else None
        facts = dict(facts) if isinstance(facts, dict) and len(facts) < FACTS else {}
        facts[key] = fact
        write(self.folder, name, json.dumps({"stamp": before[0], "sha256": digest, "facts": facts}))


def user_memory() -> FileMemory | None:
    """The `FileMemory` in the user's cache folder, `~/.cache/xpc/data`. None if the cache is turned off
    (XPC_CACHE=off).
    """
    folder = private_folder("data")
    return None if folder is None else FileMemory(folder)


def _name(path: str, version: str) -> str:
    return sha256(f"{os.path.abspath(path)}\0{version}".encode("utf-8", "surrogatepass")).hexdigest()
