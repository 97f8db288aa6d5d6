"""Read the files that a source names: next to it, in the folders above it up to the root of its repository, or in the
working directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

from xpc.compiler.files.workspace import Workspace, read_file
from xpc.compiler.importing.text.entries import MAX_SIZE

MOST_FOLDERS = 8
"""The most folders above a source that are searched for a file."""
MOST_SCRIPTS = 300
"""The most Python files that are searched for a key."""


def reader(folder: str, typed: str = "") -> Callable[[str], bytes | None]:
    """A function that takes a file's name in a source in `folder` and returns the file's bytes; None if there is no
    such file.

    A published source is untrusted and may name any path. Outside its repository (or outside its folder, if there is no
    repository), only kinds of texts that a spec may name are read, and as in a spec no absolute path, unless the user
    typed it (`typed` is the command of `--command`).
    """
    folders = list(_upwards(os.path.abspath(folder)))

    @cache  # `--partial` follows a script again for each decision
    def read(name: str) -> bytes | None:
        if not name or "\0" in name:
            return None
        for one in dict.fromkeys((*folders, os.getcwd())):
            root = folders[-1] if one in folders else one
            path = os.path.normpath(os.path.join(one, name))
            with suppress(OSError, ValueError):  # skip names that are missing, too large, or not file names
                foreign = os.path.isabs(name) and name not in typed
                refused = name.endswith(".py") or foreign or Workspace(one).outside_fault(name)
                if _inside(root, path) or not refused:
                    return read_file(path, 4 * MAX_SIZE)
        return None

    return read


def scripts_near(folder: str, endings: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, str]]:
    """The names and texts of the Python files (or of files with other endings) in a source's folder, in its `src` and
    `scripts`, and in the same places of the folders above, up to the root of the repository.
    """
    count = 0
    for here in _upwards(os.path.abspath(folder)):
        for part in ("", "src", "scripts"):
            place = os.path.join(here, part)
            try:
                names = sorted(one for one in os.listdir(place) if one.endswith(endings))
            except OSError:
                continue
            for name in names:
                count += 1
                if count > MOST_SCRIPTS:
                    return
                with suppress(OSError, ValueError):
                    path = os.path.join(place, name)
                    yield os.path.relpath(path, folder), read_file(path, MAX_SIZE).decode("utf-8-sig", "replace")


def _inside(root: str, path: str) -> bool:
    real, home = os.path.realpath(path), os.path.realpath(root)
    hidden = any(part.startswith(".") for part in os.path.relpath(path, root).split(os.sep))
    return real.startswith(home.rstrip(os.sep) + os.sep) and not hidden


def _upwards(folder: str) -> Iterator[str]:
    """The folder, and those above it in the same git repository."""
    above = [folder]
    while len(above) < MOST_FOLDERS and not os.path.exists(os.path.join(above[-1], ".git")):
        parent = os.path.dirname(above[-1])
        if parent == above[-1]:
            break
        above.append(parent)
    return iter(above if os.path.exists(os.path.join(above[-1], ".git")) else above[:1])
