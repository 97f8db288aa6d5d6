"""What `xpc check` printed for files that have not changed since: answered without importing the compiler.

An entry holds the output, the exit status and every file that decided them, with its digest (a large data file: its
size and time). The key holds the arguments, the working directory and the state of the installation, so that neither an
upgrade nor an edit of the compiler can bring an old answer back. Nothing here is needed for a right answer: whatever
goes wrong means that the check runs.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256

LARGE = 2**20
"""Files above this size are recognised by size and time of change, bytes."""
MOST = 256
"""Entries kept."""


def folder() -> str | None:
    """Where entries live, or None when caching is off (XPC_CACHE=off)."""
    if os.environ.get("XPC_CACHE") == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "xpc", "check") if os.path.isabs(base) else None


def key(argv: list[str], terminal: bool) -> str:
    """The name of the entry for a command line."""
    parts = [sys.version, os.getcwd(), str(terminal), *argv, *_installation()]
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _installation() -> list[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    out = []
    for part in ("", "rules", "plan", "lower", "targets", "registry", "render", "../grammar"):
        with os.scandir(os.path.join(here, part)) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".json")):
                    stat = entry.stat()
                    out.append(f"{part}/{entry.name}:{stat.st_mtime_ns}:{stat.st_size}")
    return sorted(out)


def state(path: str) -> str:
    """What a file is now: a digest, a size and time, `folder`, or nothing."""
    try:
        stat = os.stat(path)
        if os.path.isdir(path):
            return "folder"
        if stat.st_size > LARGE or not os.path.isfile(path):
            return f"{stat.st_size}:{stat.st_mtime_ns}"
        with open(path, "rb") as handle:
            return sha256(handle.read()).hexdigest()
    except (OSError, ValueError):
        return ""


def _ours(where: str) -> bool:
    """Whether nobody else can write into the folder: an entry is printed as it stands."""
    try:
        found = os.stat(where)
    except OSError:
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def lookup(name: str) -> tuple[str, int] | None:
    """Output and exit status of an entry whose files are as they were, or None."""
    where = folder()
    if where is None or not _ours(where):
        return None
    try:
        with open(os.path.join(where, name), encoding="utf-8") as handle:
            entry = json.load(handle)
        if all(state(path) == before for path, before in entry["files"].items()):
            return str(entry["output"]), int(entry["status"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def store(name: str, files: list[str], output: str, status: int) -> None:
    """Keep an answer. A cache that cannot be written is no error."""
    where = folder()
    if where is None:
        return
    entry = {"files": {path: state(path) for path in files}, "output": output, "status": status}
    try:
        os.makedirs(where, mode=0o700, exist_ok=True)
        if not _ours(where):
            return
        temporary = os.path.join(where, f"{name}.{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as handle:
            json.dump(entry, handle)
        os.replace(temporary, os.path.join(where, name))
        kept = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(where))
        for _, path in kept[:-MOST]:
            os.unlink(path)
    except (OSError, ValueError):
        pass
