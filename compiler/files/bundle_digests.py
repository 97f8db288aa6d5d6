"""Compute the digests of a bundle's files, to compare it with another bundle.

All regular files are included, even those that are not in `bundle.toml`: a module that somebody adds to `trainer/`
could be run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from xpc.compiler.files.bundle import EXECUTABLE
from xpc.compiler.files.bundled import MANIFEST, SPEC, parsed
from xpc.compiler.files.digest import digest, sha256
from xpc.compiler.files.folder_contents import LARGEST, read, tree
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.workspace import MAX_TEXT
from xpc.grammar.record import entity

TOTAL = 4 * 2**30
"""Maximum total size in bytes of a bundle's files."""
MOST = 20_000
"""The largest number of files in a bundle. It is larger than 10,000, because a bundle may contain a data folder with up
to 10,000 files.
"""
NOT_EXECUTABLE = " (not executable)"
"""A suffix of the digest of a script that is not executable. Because of the suffix, an executable script with the same
contents has a different digest.
"""


@entity
class BundleTree:
    """The files below a folder. `digests` maps the name of each file to its SHA-256 in hex. `bytecode` has the digests
    of the .pyc files in `__pycache__` folders.

    `foreign` are folders that contain no file of the manifest, such as the output of a run; their files are not read.
    `listed` has the digests of the bundle's files as the manifest states them; `weights` has the stated digests of the
    files of local models.
    """

    folder: str
    digests: Mapping[str, str]
    bytecode: Mapping[str, str]
    foreign: tuple[str, ...]
    listed: Mapping[str, str]
    weights: Mapping[str, str]

    def read(self, name: str) -> bytes:
        """The contents of one file. Raises UsageError."""
        return read_regular(os.path.join(self.folder, name))


def bundle_tree(folder: str, known: dict[tuple[int, int], str]) -> BundleTree:
    """Compute the digests of a bundle's files. Raises UsageError if the folder is not a bundle, or has a file that is
    not regular.

    `known` is a cache of digests by device and inode. With it, files that members of a sweep share are read once.
    """
    listed, weights = _stated(folder)
    digests: dict[str, str] = {}
    bytecode: dict[str, str] = {}
    own = {name.partition("/")[0] for name in listed if "/" in name}
    try:
        found = tree(folder)
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    below = [*found.files, *found.folders, *found.special_files]
    foreign = {top for top, slash, _ in (name.partition("/") for name in below) if slash and top not in own}
    foreign |= {name for name in found.folders if "/" not in name}
    for name, phrase in found.special_files.items():
        if name.partition("/")[0] not in foreign:
            raise UsageError(f"{os.path.join(folder, name)} {phrase}, and is not read: a bundle has only regular files")
    files = {name: status for name, status in found.files.items() if name.partition("/")[0] not in foreign}
    for location in found.bytecode:
        if location.partition("/")[0] in own or "/" not in location:
            inside = os.path.join(folder, location)
            files |= {f"{location}/{name}": os.lstat(os.path.join(inside, name)) for name in os.listdir(inside)}
    if len(files) > MOST:
        raise UsageError(f"{folder} has more than {MOST:,} files, too many for a bundle")
    if sum(status.st_size for status in files.values()) > TOTAL:
        raise UsageError(f"{folder} has more than {TOTAL // 2**30} GiB of files, too many for a bundle")
    for name, status in files.items():
        key = (status.st_dev, status.st_ino)
        if key not in known:
            known[key] = sha256(read_regular(os.path.join(folder, name))).hexdigest()
        marked = name in EXECUTABLE and not status.st_mode & stat.S_IXUSR
        group = bytecode if os.path.dirname(name) in found.bytecode else digests
        group[name] = known[key] + NOT_EXECUTABLE * marked
    return BundleTree(folder, digests, bytecode, tuple(sorted(f"{one}/" for one in foreign)), listed, weights)


def _stated(folder: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Read a bundle's manifest. Return two tables of stated digests: of the bundle's files, and of the files of local
    models. Raises UsageError if there is no valid manifest.
    """
    path = os.path.join(folder, MANIFEST)
    if os.path.islink(path) or not os.path.isfile(path):
        raise UsageError(f"{folder} is not a bundle: it has no {MANIFEST} of xpc")
    data = read_regular(path, MAX_TEXT)
    table = parsed(data)
    if table is None:
        raise UsageError(f"{folder} is not a bundle: its {MANIFEST} is damaged, or another program's")
    return table["files"], table.get("weights", {})


def copies_spec(data: bytes, spec: bytes) -> bool:
    """Whether the manifest `data` lists a `spec.xp` with the contents `spec`. Such a spec belongs to a bundle."""
    table = parsed(data)
    return table is not None and table["files"].get(SPEC) == digest(spec)


def files_at_top(folder: str) -> dict[str, str]:
    """The digests of the files directly in a folder. Raises UsageError if one of these files is not regular."""
    with os.scandir(folder) as entries:
        names = sorted(one.name for one in entries if not one.is_dir(follow_symlinks=False))
    return {name: sha256(read_regular(os.path.join(folder, name))).hexdigest() for name in names}


def read_regular(path: str, limit: int = LARGEST) -> bytes:
    """The bytes of a regular file. Links are not followed, and the function does not wait for a pipe. Raises
    UsageError.
    """
    try:
        return read(path, limit)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
