"""List and read the files of a bundle that may come from an attacker.

A bundle consists of folders and regular files. Links, pipes, devices and sockets are reported, and never opened. Files
above the size limit for copies in bundles are not read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from errno import EISDIR

from xpc.grammar.record import entity, field

LARGEST = 64 * 2**20
"""Maximum size in bytes of a file in a bundle."""
LARGEST_METRICS = 256 * 2**20
"""Maximum size in bytes of a run's metrics.jsonl."""
KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
BYTECODE = "__pycache__"
COMPILED = re.compile(r"\.pyc(\.\d+)?\Z")
"""Matches the suffix of a bytecode file of Python. While Python writes such a file, the name ends with a number, as in
`a.pyc.1234`.
"""


@entity
class Tree:
    """The contents of a folder and its subfolders, by path relative to the folder.

    `files` has the status of each regular file. `folders` are the empty folders. `bytecode` are the `__pycache__`
    folders that contain only bytecode. `special_files` maps entries such as links and pipes to phrases such as `is a
    link`.
    """

    files: dict[str, os.stat_result] = field(factory=dict)
    folders: list[str] = field(factory=list)
    bytecode: list[str] = field(factory=list)
    special_files: dict[str, str] = field(factory=dict)


def tree(folder: str) -> Tree:
    """List a folder and its subfolders. The path of the folder itself may be a link. Raises OSError if the folder
    cannot be listed.
    """
    out = Tree()
    open_folders = [("", os.path.realpath(folder))]
    while open_folders:
        prefix, path = open_folders.pop()
        found = sorted(os.scandir(path), key=lambda one: one.name)
        if not found and prefix:
            out.folders.append(prefix.rstrip("/"))
        for one in found:
            name, status = prefix + one.name, one.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                out.files[name] = status
                if status.st_size > LARGEST:
                    out.special_files[name] = f"is larger than {LARGEST // 2**20} MiB"
            elif not stat.S_ISDIR(status.st_mode):
                out.special_files[name] = "is " + next(
                    (word for test, word in KINDS if test(status.st_mode)), "not a regular file"
                )
            elif one.name == BYTECODE and is_bytecode(one.path):
                out.bytecode.append(name)
            else:
                open_folders.append((name + "/", one.path))
    return out


def walk(folder: str, failed: Callable[[OSError], None] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`: yield each folder with its subfolders and its other entries. The function enters neither links to
    folders nor subfolders that the caller removes from the yielded list.

    `os.walk` of Python 3.11 calls itself for each level, so a thousand nested folders end it with a RecursionError.
    """
    open_folders = [folder]
    while open_folders:
        where = open_folders.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(where) as found:
                for one in found:
                    (folders if one.is_dir() else names).append(one.name)
        except OSError as error:
            if failed is not None:
                failed(error)
            continue
        yield where, folders, names
        paths = (os.path.join(where, one) for one in reversed(folders))
        open_folders += [path for path in paths if not os.path.islink(path)]


def is_bytecode(folder: str) -> bool:
    """Whether a folder (not a link to one) contains only bytecode. Python writes such folders during a run."""
    if os.path.basename(folder) != BYTECODE or os.path.islink(folder):
        return False
    with os.scandir(folder) as inside:
        return all(COMPILED.search(one.name) and one.is_file(follow_symlinks=False) for one in inside)


def without_following(path: str, flags: int) -> int:
    """An opener for `open` that raises OSError for a link, and that does not wait for a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def without_waiting(path: str, flags: int) -> int:
    """An opener for `open` that follows links, and that raises OSError for anything but a regular file. Reads never
    block, even from a file such as /proc/kmsg, which looks regular but could make a read wait for ever.
    """
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if kind != stat.S_IFREG:
        raise OSError("it is not a regular file")  # opening a device may have an effect
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read(path: str, limit: int = LARGEST, opener: Callable[[str, int], int] | None = without_following) -> bytes:
    """Return the contents of a regular file. If `opener` is None, the file may also be a pipe. Raises OSError with a
    sentence for any other kind of file, and for a file larger than `limit` bytes. The default opener also refuses
    links.
    """
    with os.fdopen((opener or os.open)(path, os.O_RDONLY), "rb") as handle:
        status = os.fstat(handle.fileno())
        if opener is not None and not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        size = status.st_size
        # `read(limit)` is not used: it would first allocate a buffer of `limit` bytes
        data: bytes | None = handle.read(size + 1) if size <= limit else b""
        if data is None:
            raise OSError("reading it would wait for data")
        if len(data) > size:  # the file has grown while it was read, or is in /proc, where all sizes are 0
            data += handle.read(limit + 1 - len(data)) or b""
        if max(len(data), size) > limit:
            raise OSError(f"it is larger than {limit // 2**20} MiB")
        return data


def parts(folder: str, name: str) -> Iterator[str]:
    """Yield the paths of the folders from the bundle down to the folder of a file, and then the path of the file."""
    for part in name.split("/"):
        folder = os.path.join(folder, part)
        yield folder


def read_inside(folder: str, name: str) -> bytes:
    """Read a file of a bundle by its name in the bundle. Raises OSError if the file is not regular, or if one of its
    folders is a link.
    """
    if any(os.path.islink(path) for path in parts(folder, name)):
        raise OSError("it is a link")
    return read(os.path.join(folder, name))
