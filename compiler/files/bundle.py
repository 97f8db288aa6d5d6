"""Write a bundle either completely or not at all, and never over files that the compiler did not write."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from xpc.compiler.files.atomic import recover, replace_folder
from xpc.compiler.files.digest import sha256, shared_digest
from xpc.compiler.files.folder_contents import LARGEST, is_bytecode, walk
from xpc.compiler.files.folder_contents import read as read_file
from xpc.compiler.files.workspace import read_toml

EXECUTABLE = frozenset({"launch.sh", "evaluate.sh"})
MANIFESTS = ("bundle.toml", "sweep.toml")
SHARED = ("trainer/", "files/", "data/")
"""Folders whose files are the same in all members of a sweep. Each file of these folders is stored once, and every
member gets a hard link to the file.
"""


class BundleError(Exception):
    """Raised if the bundle cannot be written; the message is one sentence for the user."""


def write(files: Mapping[str, bytes], out: str, force: bool = False) -> str | None:
    """Write the files of a bundle, or of a sweep's folder, to `out`. Returns the path to which an old folder was moved,
    or None.

    Raises BundleError if `out` is not a bundle, or has files that the compiler did not write; with `force`, such a
    folder is moved to the first free `out.before-N` instead. If the process is killed while it writes, `out` is the old
    folder or the new one, complete in both cases. A hidden folder may remain next to `out` until the next write.
    """
    try:
        target = os.path.realpath(out)
        recover(target, _has_foreign_files)
        around = _enclosing_bundle(target)
        if around:
            raise BundleError(f"{out} lies within the bundle {around}, which would then differ from what was compiled")
        foreign = why_foreign(target)
        if foreign and not force:
            raise BundleError(f"{out} {foreign}; choose another folder with -o, or --force to move it aside")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return replace_folder(target, lambda folder: _fill(folder, files), why_foreign, aside=bool(foreign))
    except OSError as error:
        raise BundleError(f"{out} cannot be written: {error.strerror or error}") from error


def _fill(folder: str, files: Mapping[str, bytes]) -> None:
    """Write the files into an empty folder. The mode of each file is set explicitly, so it does not depend on
    the umask.
    """
    made: set[str] = {folder}
    there: dict[tuple[str, bytes], str] = {}
    for name, data in files.items():
        if os.path.isabs(name) or ".." in name.split("/"):
            raise BundleError(f"{name} would lie outside of the bundle")
        path = os.path.join(folder, name)
        _make_folder(os.path.dirname(path), made)
        own = name.split("/", 2)[2] if name.startswith("members/") else ""
        if own.startswith(SHARED):
            first = there.setdefault((own, data), path)
            if first is not path and _linked(first, path):
                continue
        with open(path, "wb") as handle:
            handle.write(data)
        os.chmod(path, 0o755 if (own or name) in EXECUTABLE else 0o644)


def _make_folder(folder: str, made: set[str]) -> None:
    if folder not in made:
        _make_folder(os.path.dirname(folder), made)
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        made.add(folder)


def _linked(first: str, path: str) -> bool:
    """Make `path` a hard link to the file `first`. Returns False if the file system cannot do so."""
    try:
        os.link(first, path)
    except OSError:  # the file system has no hard links, or allows no further link to this file
        return False
    return True


def _enclosing_bundle(target: str) -> str:
    """The path of the bundle that contains a path, or ""."""
    while (parent := os.path.dirname(target)) != target:
        target = parent
        if any(os.path.isfile(os.path.join(target, name)) for name in MANIFESTS) and _digests(target) is not None:
            return target
    return ""


def _has_foreign_files(target: str) -> bool:
    """Whether a folder that a killed process left contains files that the compiler did not write. False for a folder
    without a manifest: this is an unfinished bundle, into which only the compiler has written.
    """
    return _digests(target) is not None and bool(why_foreign(target))


def why_foreign(target: str) -> str:
    """The reason why the compiler must not replace a folder: it contains files that the compiler did not write, or that
    were changed after the compiler wrote them. "" if the folder may be replaced.
    """
    if not os.path.lexists(target):
        return ""
    if not os.path.isdir(target):
        return "is a file"
    if not os.listdir(target):
        return ""
    known = _digests(target)
    if known is None:
        return "is not a bundle of xpc"
    read: dict[tuple[int, int], str] = {}
    parents = {name[:at] for name in known for at, c in enumerate(name) if c == "/"}
    for folder, folders, inside in walk(target, _raise):
        folders[:] = sorted(name for name in folders if not is_bytecode(os.path.join(folder, name)))
        for name in sorted([*inside, *folders]):
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, target).replace(os.sep, "/")
            if relative in parents and stat.S_ISDIR(os.lstat(path).st_mode):
                continue
            why = _why_foreign_file(path, relative, known, read)
            if why:
                return f"contains {relative}, which {why}"
    return ""


def _why_foreign_file(path: str, relative: str, known: Mapping[str, str], read: dict[tuple[int, int], str]) -> str:
    """Why one file of a folder must not be replaced, or "". `known` are the digests of the bundle's files. `read` has
    the digests of the files that were already read, by device and inode.
    """
    if relative in MANIFESTS and relative not in known:
        return "" if _is_sealed(path) else "was changed since the compiler wrote it or comes from an older xpc"
    if relative not in known:
        return "the compiler did not write"
    # a pipe or a device is not opened, because reading from it might never end
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return "is not a regular file"
    found = os.stat(path)
    if found.st_nlink < 2 or (found.st_dev, found.st_ino) not in read:
        if found.st_size > LARGEST:
            return "is larger than what the compiler writes"
        read[found.st_dev, found.st_ino] = "sha256:" + sha256(read_file(path)).hexdigest()
    same = read[found.st_dev, found.st_ino] == known[relative]
    return "" if same else "was changed since the compiler wrote it"


def _raise(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed. The folder must not be replaced, because its contents are
    unknown.
    """
    raise error


def _is_sealed(path: str) -> bool:
    """Whether a manifest is unedited: its last line contains the digest of all lines above it."""
    try:
        data = read_file(path)
    except OSError:
        return False
    above = data[: data.rstrip(b"\n").rfind(b"\n") + 1]
    return sealed(above) == data


def _digests(target: str) -> dict[str, str] | None:
    """The digests of all files of a bundle, or of all members of a sweep, as the manifests state them. None if there is
    no manifest that can be read.
    """
    table = _table(os.path.join(target, "bundle.toml"), "bundle")
    if table is not None:
        return _files(table)
    table = _table(os.path.join(target, "sweep.toml"), "sweep")
    if table is None:
        return None
    out, found = _files(table), table.get("member")
    for member in found if isinstance(found, list) else ():
        name = str(member.get("name")) if isinstance(member, dict) else ""
        if os.path.basename(name) != name:
            return None
        bundle = _table(os.path.join(target, "members", name, "bundle.toml"), "bundle")
        if bundle is not None:  # a missing or unreadable manifest is reported later, when digests are compared
            out |= {f"members/{name}/{file}": value for file, value in _files(bundle).items()}
        out[f"members/{name}/bundle.toml"] = str(member.get("bundle"))
    return out


def _files(table: Mapping[str, object]) -> dict[str, str]:
    files = table["files"]
    assert isinstance(files, dict)
    return {str(name): str(value) for name, value in files.items()}


def _table(path: str, head: str) -> dict[str, object] | None:
    """Read a manifest: a TOML file with a table `files` and a second table, whose name is `head` ("bundle" or "sweep").
    Returns None for other files.
    """
    table = read_toml(path)
    if table is None or not isinstance(table.get("files"), dict):
        return None
    header = table.get(head)
    return table if isinstance(header, dict) and "xpc" in header else None


def sealed(table: bytes) -> bytes:
    """Return a manifest with a last line added: the digest of all lines above it. This line shows later whether
    somebody edited the manifest.
    """
    return table + f"# The lines above: {shared_digest(table)}\n".encode()
