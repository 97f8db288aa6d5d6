"""Read the files that an imported file names. A file is searched next to the imported file, then in the folders above
up to the root of the git repository, then in the working directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

from xpc.compiler.files.folder_contents import walk
from xpc.compiler.files.workspace import Workspace, read_file
from xpc.compiler.importing.text.entries import MAX_SIZE

MOST_FOLDERS = 8
"""The largest number of folders in which a named file is searched: the imported file's folder and those above it."""
ROOTS = (".git", "pyproject.toml", "setup.py")
"""A folder that contains one of these is the root of a repository or of a Python project."""
MOST_WALKED, MOST_LISTED = 2_000, 20_000
"""In a repository with more than MOST_WALKED folders or MOST_LISTED files, scripts are not searched by name."""
FOREIGN = ("node_modules", "site-packages", "__pycache__", "venv", "env")
"""Names of folders with files of other projects, which are not searched."""
PARTS = ("", "src", "scripts", "training", "train")
"""Names of subfolders in which a repository may have its training scripts."""
MOST_SCRIPTS = 300
"""The largest number of Python files that are searched for keys of the repository's own scripts."""


def reader(folder: str, typed: str = "") -> Callable[[str], bytes | None]:
    """Return a function that reads files for an import from `folder`. The function takes the name of a file and returns
    its bytes, or None if the file does not exist.

    A configuration may come from a stranger, and may name any path. All files of its repository (without one, of its
    folder) may be read. Any other file is read only if it is no Python file, if a spec in the configuration's folder
    may name it (`Workspace.outside_fault`), and if its path is relative or typed by the user (`typed` is the text of
    `--command`).
    """
    folders = list(_upwards(os.path.abspath(folder)))

    @cache  # cached, because `--partial` reads a script again for each decision
    def read(name: str) -> bytes | None:
        if not name or "\0" in name:
            return None
        for one in dict.fromkeys((*folders, os.getcwd())):
            root = folders[-1] if one in folders else one
            path = os.path.normpath(os.path.join(one, name))
            # tested first, because most of the folders do not have the file
            if not os.path.exists(path):
                continue
            with suppress(OSError, ValueError):  # skip files that are unreadable or too large
                foreign = os.path.isabs(name) and name not in typed
                refused = name.endswith(".py") or foreign or Workspace(one).outside_fault(name)
                if _inside(root, path) or not refused:
                    # a file of rows may be larger
                    return read_file(path, (64 if name.endswith((".json", ".jsonl")) else 4) * MAX_SIZE)
        return None

    return read


def files_near(folder: str, pattern: str = r"\.py$") -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each Python file near a source, or of each file whose name matches `pattern`. The
    function searches the source's folder, the folders above it up to the root of the repository, and the subfolders
    PARTS of each of these folders.
    """
    count = 0
    for here in _upwards(os.path.abspath(folder)):
        for part in PARTS:
            location = os.path.join(here, part)
            try:
                names = sorted(one for one in os.listdir(location) if re.search(pattern, one))
            except OSError:
                continue
            for name in names:
                count += 1
                if count > MOST_SCRIPTS:
                    return
                with suppress(OSError, ValueError):
                    path = os.path.join(location, name)
                    yield os.path.relpath(path, folder), read_file(path, MAX_SIZE).decode("utf-8-sig", "replace")


def finder(folder: str) -> Callable[[str], list[str]]:
    """Return a function that finds Python files by name: for `sft.py`, it returns the paths of all files of this name
    in the repository, relative to `folder`; for "", of all Python files. Without a repository, it returns no paths.
    """
    start = os.path.abspath(folder)
    root = list(_upwards(start))[-1]

    @cache
    def names() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        folders, files = 0, 0
        for here, inner, listed in walk(root):
            folders, files = folders + 1, files + len(listed)
            if folders > MOST_WALKED or files > MOST_LISTED:
                return {}
            inner[:] = sorted(one for one in inner if not one.startswith(".") and one not in FOREIGN)
            for name in listed:
                if name.endswith(".py"):
                    path = os.path.relpath(os.path.join(here, name), start)
                    for key in (name, ""):
                        found.setdefault(key, []).append(path)
        return found

    return lambda name: names().get(name, []) if _marked(root) else []


def place(folder: str, name: str) -> str:
    """The path of a source relative to the root of its repository, such as `recipes/x/dpo/config.yaml`. The path does
    not depend on the working directory. Without a repository, it is the source's name.
    """
    start = os.path.abspath(folder)
    root = list(_upwards(start))[-1]
    inside = os.path.join(start, os.path.basename(name))
    return os.path.relpath(inside, root) if _marked(root) else name


def _inside(root: str, path: str) -> bool:
    real, home = os.path.realpath(path), os.path.realpath(root)
    hidden = any(part.startswith(".") for part in os.path.relpath(path, root).split(os.sep))
    return real.startswith(home.rstrip(os.sep) + os.sep) and not hidden


def _upwards(folder: str) -> Iterator[str]:
    """The folder and the folders above it, up to the root of its repository. The root is the nearest folder with `.git`
    or, in a copy without history, with `pyproject.toml` or `setup.py`.
    """
    above = [folder]
    while len(above) < MOST_FOLDERS and not os.path.exists(os.path.join(above[-1], ".git")):
        parent = os.path.dirname(above[-1])
        if parent == above[-1]:
            break
        above.append(parent)
    if not os.path.exists(os.path.join(above[-1], ".git")):
        root = next((n for n, one in enumerate(above) if _marked(one)), 0)
        above = above[: root + 1]
    return iter(above)


def _marked(folder: str) -> bool:
    """Whether a folder is the root of a repository or of a Python project."""
    return any(os.path.exists(os.path.join(folder, one)) for one in ROOTS)
