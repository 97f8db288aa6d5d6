"""Writing a bundle: whole or not at all, and never over what somebody else wrote."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from hashlib import sha256

from xpc.compiler.lower import EXECUTABLE

IGNORED = "__pycache__"
"""A run leaves compiled modules beside the trainer; they are nobody's work."""


class BundleError(Exception):
    """The bundle could not be written; the message is one sentence for the user."""


def write(files: Mapping[str, bytes], out: str, force: bool = False) -> str | None:
    """Write the files of a bundle to the directory `out`; returns where something that stood there was moved to.

    An `out` that is not a bundle, or a bundle with files that the compiler did not write, raises BundleError; with
    `force` it is moved aside, complete, to the first free `out.before-N`. A process that dies on the way leaves the old
    directory or the new one, and at most a hidden temporary folder beside it.
    """
    target = os.path.realpath(out)
    parent = os.path.dirname(target)
    try:
        foreign = _foreign(target)
        if foreign and not force:
            raise BundleError(f"{out} {foreign}; choose another folder with -o, or --force to move it aside")
        os.makedirs(parent, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix=f".{os.path.basename(target)[:40]}.", dir=parent)
        try:
            _fill(temporary, files)
            return _swap(temporary, target, aside=bool(foreign))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise BundleError(f"{out} cannot be written: {error.strerror or error}") from error


def _fill(folder: str, files: Mapping[str, bytes]) -> None:
    os.chmod(folder, 0o755)
    for name, data in files.items():
        if os.path.isabs(name) or ".." in name.split("/"):
            raise BundleError(f"{name} would lie outside of the bundle")
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "wb") as handle:
            handle.write(data)
        os.chmod(path, 0o755 if name in EXECUTABLE else 0o644)


def _swap(temporary: str, target: str, aside: bool) -> str | None:
    if not os.path.lexists(target):
        os.rename(temporary, target)
        return None
    if aside:
        number = 1
        while os.path.lexists(f"{target}.before-{number}"):
            number += 1
        old = f"{target}.before-{number}"
    else:
        old = tempfile.mkdtemp(prefix=f".{os.path.basename(target)[:40]}.old.", dir=os.path.dirname(target)) + "/bundle"
    try:
        os.rename(target, old)
        try:
            os.rename(temporary, target)
        except BaseException:
            os.rename(old, target)
            raise
    except BaseException:
        if not aside and not os.path.lexists(old):
            os.rmdir(os.path.dirname(old))
        raise
    if aside:
        return old
    shutil.rmtree(os.path.dirname(old), ignore_errors=True)
    return None


def _foreign(target: str) -> str:
    """Why the directory is not ours to replace, or nothing."""
    if not os.path.lexists(target):
        return ""
    if not os.path.isdir(target):
        return "is a file"
    names = sorted(os.listdir(target))
    if not names:
        return ""
    known = _digests(target)
    if known is None:
        return "is not a bundle of xpc"
    for folder, folders, inside in os.walk(target):
        folders[:] = sorted(name for name in folders if name != IGNORED)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*inside, *links]):
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, target).replace(os.sep, "/")
            if relative == "bundle.toml":
                continue
            if relative not in known:
                return f"holds {relative}, which the compiler did not write"
            with open(path, "rb") as handle:
                if "sha256:" + sha256(handle.read()).hexdigest() != known[relative]:
                    return f"holds {relative}, which was changed since the compiler wrote it"
    return ""


def _digests(target: str) -> dict[str, str] | None:
    """The `[files]` of a bundle, or None where there is no readable bundle.toml of ours."""
    import tomllib

    try:
        with open(os.path.join(target, "bundle.toml"), "rb") as handle:
            table = tomllib.load(handle)
    except (OSError, ValueError, RecursionError):
        return None
    files, head = table.get("files"), table.get("bundle")
    if not isinstance(files, dict) or not isinstance(head, dict) or "xpc" not in head:
        return None
    return {str(name): str(value) for name, value in files.items()}
