"""Small JSON files that xpc stores for its own use, in a cache folder that only the user can write to.

`runtime/features/launch/private_entries.py` says which folders and files are accepted. xpc deletes only its own entries
in this folder. Every command also works without entries: an entry that cannot be read counts as missing, and an entry
that cannot be written is not stored.
"""

from __future__ import annotations

import os

from xpc.runtime.core.cache_folders import private_folder as private_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 256
"""The largest number of entries in a private folder."""


def read(folder: str, name: str) -> dict[str, Any] | None:
    """Read an entry; None if it cannot be read or is not a JSON object."""
    from xpc.runtime.features.launch import private_entries  # imported here, because a plain check reads no entry

    try:
        entry = private_entries.read(folder, name)
    except (OSError, ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def write(folder: str, name: str, text: str) -> None:
    """Write an entry. If there are then more than MOST entries, delete the oldest ones. An entry larger than 1 MiB is
    not written. Never raises.
    """
    from xpc.runtime.features.launch import private_entries

    if len(text) > private_entries.LARGEST:
        return
    try:
        descriptor = private_entries.opened(folder, make=True)
        try:
            private_entries.write(descriptor, name, text)
            _prune(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        pass


def _prune(folder: int) -> None:
    """Delete the oldest entries until MOST are left. Half-written entries of killed processes count as entries. Other
    files stay.
    """
    with os.scandir(folder) as inside:
        names = [one.name for one in inside if _is_entry(one.name) and one.is_file(follow_symlinks=False)]
    if len(names) > MOST:
        kept = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name) for name in names)
        for _, name in kept[:-MOST]:
            os.unlink(name, dir_fd=folder)


def _is_entry(name: str) -> bool:
    """Whether a file is an entry or a half-written entry. The name of an entry is 64 hexadecimal digits. A half-written
    entry is called `DIGITS.PID`.
    """
    hexadecimal, _, number = name.partition(".")
    return len(hexadecimal) == 64 and not hexadecimal.strip("0123456789abcdef") and (not number or number.isdecimal())
