"""Replacing a folder or files in one step: who looks, and who kills the process, finds the old or the new, whole.

What is new is made beside its place under a hidden name, and takes the place by a rename. Whoever makes it holds a lock
on it; the kernel drops the lock when the process dies, so the next write to the place knows what an earlier one left
behind, puts an old folder back where none stands, and removes the rest.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from xpc.compiler.files.digest import sha256

NEW, OLD = "new", "old"
"""Names in the hidden folder: what is being made, and what stood there where the two could not be exchanged."""
HERE, EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux' renameat2(2)."""


def exchange(one: str, other: str) -> bool:
    """Let two names change places in one step; False where the system or the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # milliseconds that only a replacement pays

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # an older C library
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return bool(call(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0)


def replace_folder(target: str, fill: Callable[[str], None], strange: Callable[[str], str], aside: bool) -> str | None:
    """Put the folder that `fill` makes in the place of `target`; returns where what stood there went, if it is kept.

    It is kept, as the first free `target.before-N`, with `aside`, and where `strange` then says that somebody has put
    something into it meanwhile. Raises OSError, and then the old folder stands.
    """
    with _hidden(target) as hidden:
        new, old = os.path.join(hidden, NEW), os.path.join(hidden, OLD)
        os.mkdir(new)
        os.chmod(new, 0o755)
        fill(new)
        if not os.path.lexists(target):
            try:
                os.rename(new, target)
                return None
            except OSError:
                if not os.path.lexists(target):
                    raise
        if aside:
            kept = _free(target)
            os.rename(new, kept)  # a kill from here on leaves the old in its place, or the new there and the old here
            if exchange(kept, target):
                return kept
            os.rename(kept, new)
            _step_by_step(new, target, kept)
            return kept
        if not exchange(new, target):
            _step_by_step(new, target, old)
            new = old
        if not os.path.isdir(new) or strange(new):
            kept = _free(target)
            os.rename(new, kept)
            return kept
        return None


def _step_by_step(new: str, target: str, old: str) -> None:
    """Two renames where one will not do. A kill between them leaves no target; `recover` puts the old one back."""
    os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(old, target)
        raise


def _free(target: str) -> str:
    number = 1
    while os.path.lexists(f"{target}.before-{number}"):
        number += 1
    return f"{target}.before-{number}"


def replace_files(files: Mapping[str, bytes]) -> None:
    """Write files, each whole or not at all, and none before all fit on the disk. Links are written through.

    Raises OSError; `filename` is the path as it was given.
    """
    made: list[tuple[str, str, int]] = []
    try:
        for path, data in files.items():
            target = os.path.realpath(path)
            try:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                for _ in left_behind(target):
                    pass
                temporary, held = _made(target, _new_file)
                made.append((temporary, target, held))
                _fill_file(held, data, target)
            except OSError as error:
                error.filename = path
                raise
        for temporary, target, _ in made:
            os.replace(temporary, target)
    finally:
        for temporary, _, held in made:
            os.close(held)
            if os.path.lexists(temporary):
                os.unlink(temporary)


def _new_file(prefix: str) -> str:
    """An empty file with a name of its own, and the mode that a new file has here."""
    for _ in range(100):
        path = prefix + os.urandom(4).hex()
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
            return path
        except FileExistsError:
            continue
    raise FileExistsError(17, "no free name")


def _fill_file(held: int, data: bytes, target: str) -> None:
    with os.fdopen(os.dup(held), "wb") as handle:
        handle.write(data)
    if os.path.exists(target):
        os.fchmod(held, stat.S_IMODE(os.stat(target).st_mode))


@contextmanager
def _hidden(target: str) -> Iterator[str]:
    """A private folder beside the target, locked; gone at the end, unless what stood there is nowhere but in it."""
    folder, held = _made(target, lambda prefix: tempfile.mkdtemp(prefix=prefix[prefix.rindex("/") + 1 :],
                                                                 dir=os.path.dirname(target)))  # fmt: skip
    try:
        yield folder
    finally:
        if os.path.lexists(target) or not os.path.lexists(os.path.join(folder, OLD)):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _made(target: str, make: Callable[[str], str]) -> tuple[str, int]:
    """Something new beside the target, and the descriptor that holds its lock.

    Between its making and the lock, another process may have taken it for left behind; then another one is made.
    """
    for _ in range(100):
        path = make(_prefix(target))
        held = _claimed(path)
        if held is not None:
            return path, held
        with suppress(OSError):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
    raise FileExistsError(17, "other processes remove what is made here")


def _prefix(target: str) -> str:
    """What hidden names of this target begin with: its own, as far as it fits, and a digest that others do not have."""
    name = os.path.basename(target)
    mark = sha256(os.fsencode(name)).hexdigest()[:8]
    return os.path.join(os.path.dirname(target), f".{name[:40]}.{mark}.")


def _claimed(path: str) -> int | None:
    """A descriptor that holds the lock of a file or folder, None where it is somebody else's or gone."""
    import fcntl

    try:
        kind = os.lstat(path).st_mode
        if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
            return None
        held = os.open(path, os.O_NOFOLLOW | (os.O_RDONLY if stat.S_ISDIR(kind) else os.O_RDWR))
    except OSError:
        return None
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        except OSError:  # a file system without locks: nothing is ever taken for left behind there
            pass
        if os.path.samestat(os.fstat(held), os.lstat(path)):
            return held
    except OSError:
        pass
    os.close(held)
    return None


def left_behind(target: str) -> Iterator[str]:
    """Each hidden folder that a killed process left beside the target, locked; removed after its turn, as files are."""
    parent, prefix = os.path.split(_prefix(target))
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        path = os.path.join(parent, name)
        held = _claimed(path)
        if held is None:
            continue
        try:
            if os.fstat(held).st_uid != os.geteuid() or not _locks(held):
                continue
            if os.path.isdir(path):
                yield path
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
        except OSError:
            pass
        finally:
            os.close(held)


def _locks(held: int) -> bool:
    """Whether the file system knows locks: without them, nobody can say whether a process still writes there."""
    import fcntl

    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def recover(target: str, strange: Callable[[str], bool]) -> None:
    """Put back, and clear away, what killed processes left beside the target. What `strange` knows of is kept."""
    for folder in left_behind(target):
        old = os.path.join(folder, OLD)
        if os.path.lexists(old) and not os.path.lexists(target):
            os.rename(old, target)
        for name in (NEW, OLD):
            path = os.path.join(folder, name)
            if os.path.lexists(path) and strange(path):
                os.rename(path, _free(target))
