"""Replace a folder or files in one step. Other processes then see either the old or the new version, even if this
process is killed meanwhile.

The new folder is made next to its target under a hidden name, and then renamed. Until it is renamed, this process holds
a lock on it. If the process dies, the kernel releases the lock, so a hidden folder without a lock is known to be a
leftover of a killed process. The next write to the target cleans up: if the target is missing, the write restores the
old folder from the leftover; then it removes all leftovers.
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
from xpc.compiler.files.inputs import UsageError

NEW, OLD = "new", "old"
"""Names of two folders inside the hidden folder of a write. Files are first written to the folder `new`. If the system
cannot exchange this folder with an existing one in one step, the existing folder is moved to `old`.
"""
HERE, EXCHANGE = -100, 2
"""The values of AT_FDCWD and RENAME_EXCHANGE for Linux' renameat2(2)."""


def exchange(one: str, other: str) -> bool:
    """Exchange two paths in one step. Returns False if the system or the file system cannot do this."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # imported here, because the import of ctypes is slow

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # the C library is too old: it has no renameat2
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return bool(call(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0)


def replace_folder(
    target: str, fill: Callable[[str], None], is_foreign: Callable[[str], str], aside: bool
) -> str | None:
    """Replace the folder `target` by a new one, whose contents `fill` writes. Returns the path to which the old folder
    was moved, or None if it was deleted.

    The old folder is kept as the first free `target.before-N` in two cases: if `aside` is true, or if `is_foreign`
    finds files in it that the compiler did not write. If the function raises OSError, the old folder is still in its
    place and unchanged.
    """
    with _work_folder(target) as hidden:
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
            # if this process is killed from here on, the old folder is either the target or `target.before-N`, so
            # nothing is lost
            os.rename(new, kept)
            if exchange(kept, target):
                return kept
            os.rename(kept, new)
            _step_by_step(new, target, kept)
            return kept
        if not exchange(new, target):
            _step_by_step(new, target, old)
            new = old
        if not os.path.isdir(new) or is_foreign(new):
            kept = _free(target)
            os.rename(new, kept)
            return kept
        return None


def _step_by_step(new: str, target: str, old: str) -> None:
    """Replace the target by two renames, because the system cannot exchange two folders in one step. If the process is
    killed between the two renames, the target is missing until the next write, which first restores the old folder
    (`recover`).
    """
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


def write_text(path: str, text: str) -> None:
    """Write a text file completely or not at all. Raises UsageError if it cannot be written."""
    try:
        replace_files({path: text.encode("utf-8", "backslashreplace")})
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def replace_files(files: Mapping[str, bytes]) -> None:
    """Write each file completely or not at all. The files are replaced only when the contents of all of them are on the
    disk. If a path is a symbolic link, the file that it points to is replaced, and not the link.

    Raises OSError; its `filename` is the path that the caller gave.
    """
    made: list[tuple[str, str, int]] = []
    try:
        for path, data in files.items():
            target = os.path.realpath(path)
            try:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                for _ in leftovers(target):
                    pass
                temporary, held = _create(target, _new_file)
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
    """Create an empty file with a unique name and the default mode of new files. Returns its path."""
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
def _work_folder(target: str) -> Iterator[str]:
    """A context manager for a private, locked folder next to the target. At the end of the context, the folder is
    removed, unless it contains the only copy of the old target.
    """
    folder, held = _create(target, lambda prefix: tempfile.mkdtemp(prefix=prefix[prefix.rindex("/") + 1 :],
                                                                 dir=os.path.dirname(target)))  # fmt: skip
    try:
        yield folder
    finally:
        if os.path.lexists(target) or not os.path.lexists(os.path.join(folder, OLD)):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _create(target: str, make: Callable[[str], str]) -> tuple[str, int]:
    """Make a new hidden file or folder next to the target. Returns its path and the file descriptor that holds its
    lock.

    If another process takes the new file or folder for a leftover and removes it before this process has locked it, the
    function makes a new one.
    """
    for _ in range(100):
        path = make(_prefix(target))
        held = _locked(path)
        if held is not None:
            return path, held
        with suppress(OSError):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
    raise FileExistsError(17, "other processes removed every temporary file that was made")


def _prefix(target: str) -> str:
    """The beginning of the path of each hidden file for this target: the target's name, cut to 40 characters, and the
    first digits of the name's digest.
    """
    name = os.path.basename(target)
    mark = sha256(os.fsencode(name)).hexdigest()[:8]
    return os.path.join(os.path.dirname(target), f".{name[:40]}.{mark}.")


def _locked(path: str) -> int | None:
    """Lock a file or folder. Returns the file descriptor that holds the lock; None if another process has locked it, or
    if it no longer exists.
    """
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
        # if the file system has no locks, `path` counts as locked by this process, and `leftovers` skips it
        except OSError:
            pass
        if os.path.samestat(os.fstat(held), os.lstat(path)):
            return held
    except OSError:
        pass
    os.close(held)
    return None


def leftovers(target: str) -> Iterator[str]:
    """Yield each hidden folder that a killed process left next to the target, and remove the folder after the caller
    has used it. Hidden files of killed processes are removed without being yielded.

    Each folder stays locked until the caller asks for the next one.
    """
    parent, prefix = os.path.split(_prefix(target))
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        path = os.path.join(parent, name)
        held = _locked(path)
        if held is None:
            continue
        try:
            if os.fstat(held).st_uid != os.geteuid() or not _supports_locks(held):
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


def _supports_locks(held: int) -> bool:
    """Whether the file system supports locks. Without locks, xpc cannot tell whether a process was killed or is
    running.
    """
    import fcntl

    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def recover(target: str, is_foreign: Callable[[str], bool]) -> None:
    """Clean up what killed processes left next to the target: restore the old folder if the target is missing, and
    remove all other leftovers. A folder for which `is_foreign` returns true is moved to `target.before-N` instead of
    being removed.
    """
    for folder in leftovers(target):
        old = os.path.join(folder, OLD)
        if os.path.lexists(old) and not os.path.lexists(target):
            os.rename(old, target)
        for name in (NEW, OLD):
            path = os.path.join(folder, name)
            if os.path.lexists(path) and is_foreign(path):
                os.rename(path, _free(target))
