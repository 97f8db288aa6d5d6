"""Remember facts that were computed from a file's contents, such as counts over a data file's rows, for later commands.

An entry is used only if the file's size, times of change and inode are the same as before and after it was read. A file
that changed in the last two seconds is not remembered, because a second change within one tick of the file system's
clock would not be noticed. Entries only save time: without them, commands read the file.
"""

from __future__ import annotations

import os
import stat

from xpc.grammar.record import mutable

SETTLED = 2.0
"""Number of seconds after a change in which another change might not show in the file's times, on any file system."""
FACTS = 16
"""Maximum number of facts that are stored about one file."""
Stamp = tuple[str, float]
"""A file's size, times, inode and device as text, and the time of its last change in seconds since the epoch."""


@mutable
class FileMemory:
    """Facts about files, stored in `folder`, which is created when the first one is stored.

    A fact is plain JSON. It is found by the path of its file, a `key`, and a `version` of the code that computed it.
    """

    folder: str

    def stamp(self, path: str) -> Stamp | None:
        """The current stamp of a regular file; None for other files."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        parts = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
        return ":".join(map(str, parts)), max(found.st_mtime, found.st_ctime)

    def recall(self, path: str, version: str, key: str) -> tuple[str, object] | None:
        """The digest of the file and the stored fact, if the file is unchanged; otherwise None."""
        from xpc.compiler.files.private_folder import read

        now = self.stamp(path)
        entry = None if now is None else read(self.folder, _name(path, version))
        if entry is None or now is None or entry.get("stamp") != now[0]:
            return None
        digest, facts = entry.get("sha256"), entry.get("facts")
        return (digest, facts[key]) if isinstance(digest, str) and isinstance(facts, dict) and key in facts else None

    def keep(self, path: str, before: Stamp | None, version: str, key: str, digest: str, fact: object) -> None:
        """Store a fact about a file. `before` is the file's stamp when reading began; if it has changed, nothing is
        stored. Never raises.
        """
        import json
        import time

        from xpc.compiler.files.private_folder import read, write

        if before is None or self.stamp(path) != before or before[1] > time.time() - SETTLED:
            return
        name = _name(path, version)
        entry = read(self.folder, name) or {}
        facts = entry.get("facts") if entry.get("stamp") == before[0] else None
        facts = dict(facts) if isinstance(facts, dict) and len(facts) < FACTS else {}
        facts[key] = fact
        write(self.folder, name, json.dumps({"stamp": before[0], "sha256": digest, "facts": facts}))


def user_memory() -> FileMemory | None:
    """The facts in the user's cache folder, `~/.cache/xpc/data`; None if the cache is turned off (XPC_CACHE=off)."""
    from xpc.compiler.files.private_folder import private_folder

    folder = private_folder("data")
    return None if folder is None else FileMemory(folder)


def _name(path: str, version: str) -> str:
    from xpc.compiler.files.digest import sha256

    return sha256(f"{os.path.abspath(path)}\0{version}".encode("utf-8", "surrogatepass")).hexdigest()
