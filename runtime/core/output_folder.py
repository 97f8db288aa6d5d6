"""The output folder: which run it belongs to, and whether this run may start or resume in it. Standard library only."""

import errno
import fcntl
import json
import os
import time
from typing import IO, Any

from . import same_run
from .checkpoint_integrity import STAGING
from .checkpoints import FOLDER, newest_complete
from .errors import RunError, say, stop
from .feature import Bundle

MARKER = "xpc_run.json"
RUN_FILES = (MARKER, "metrics.jsonl", "metrics.jsonl.part", "measured.jsonl", "runs", "README.md", "_hub", STAGING)
"""Files that a run may write before its first checkpoint."""
OTHERWISE = 'name another output folder, or empty this one; `train "{}"` continues from the model in that folder'
LOCK_SECONDS = 5
"""Seconds to wait for another process to release its lock."""


class Finished(Exception):
    """Raised if the run has already finished. This is not an error."""


def check_unfinished(bundle: Bundle) -> None:
    """Raise Finished if the run is done: another process may have finished it while this one waited for the lock."""
    folder = bundle.output_dir
    if os.path.exists(os.path.join(folder, "summary.json")) and difference(bundle) == "":
        raise Finished(f"{folder} contains this run, finished; to train again, empty it or name another")


def finished(bundle: Bundle, done: Finished, only_report: bool = False) -> int:
    """Report a finished run. Before this, features do what an earlier launch left undone, such as a push."""
    try:
        for feature in () if only_report else bundle.features:
            feature.finished_before(bundle)
    except RunError as error:
        return stop(error)
    say(str(done))
    return 0


def begin(bundle: Bundle, digests: bool = False) -> tuple[str | None, list[str]]:
    """Return a pair: the checkpoint to resume from (None to start at the first step), and sentences to print.

    This function writes nothing. With ``digests``, it reads every byte of the checkpoint. Raises RunError.
    """
    folder, run = bundle.output_dir, bundle.run
    present = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in present:
        path = os.path.join(folder, name)
        # reading a named pipe would block forever
        if not (os.path.isfile(path) or os.path.isdir(path) or os.path.islink(path)):
            raise RunError(f"{path} is neither a file nor a folder; remove it")
    if not present or (present == [MARKER] and not _lines(folder)):
        return None, []  # an earlier run was killed while it wrote its first file
    if present == [MARKER] and difference(bundle) is not None:  # an earlier run wrote only xpc_run.json
        _check_unlocked(folder)
        return None, ["no complete checkpoint to resume from: starting from the beginning"]
    if run["resume"] != "auto":
        raise RunError(f"{folder} is not empty and this bundle does not resume; empty it or name another output folder")
    differs = difference(bundle)
    if differs is None:
        raise RunError(f"{folder} is not empty and contains no run of a bundle; empty it or name another output folder")
    if differs:
        raise RunError(f"{folder} contains a run of another bundle{differs}; {OTHERWISE.format(folder)}")
    _check_unlocked(folder)
    check_unfinished(bundle)
    checkpoint, notes = newest_complete(folder, run["world_size"], bundle.check_checkpoint, digests)
    if checkpoint is not None:
        was = (_marker(bundle) or {}).get("settings") or {}
        division = same_run.divided_otherwise(was, same_run.settings(bundle)) if was else []
        return checkpoint, [*notes, *division, f"resuming from {os.path.basename(checkpoint)}"]
    for feature in bundle.features:
        feature.no_checkpoint_found(bundle, folder)
    foreign = [name for name in present if name not in RUN_FILES and not FOLDER.match(name)]
    if foreign and len(_lines(folder)) < 2:
        raise RunError(f"{folder} has no complete checkpoint to resume from and is not empty ({foreign[0]}); empty it")
    return None, [*notes, "no complete checkpoint to resume from: starting from the beginning"]


def lock(bundle: Bundle) -> None:
    """Write the marker (xpc_run.json); it identifies the folder's run. Keep it locked while this process lives.

    Raises RunError if another process holds the lock, or if the marker cannot be written; Finished if the run is done.
    """
    global _locked
    try:
        os.makedirs(bundle.output_dir, exist_ok=True)
        handle = _locked_marker(bundle.output_dir)
        check_unfinished(bundle)
        if difference(bundle) != "":
            handle.truncate(0)
            _append(handle, {"bundle": bundle.digest, "target": bundle.target, "settings": same_run.settings(bundle)})
    except OSError as error:
        why = f"cannot write to {bundle.output_dir}: {error.strerror}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise RunError(f"{why}; free some space, and the same command starts again" if full else why) from error
    _locked = handle
    # a data loader's process must not inherit the lock, because it may outlive this process
    os.register_at_fork(after_in_child=handle.close)


def finishing(bundle: Bundle) -> None:
    """Record that training is done and the final model is being written, so that a later launch knows that the model's
    files belong to this run."""
    if _locked is not None:
        _append(_locked, {"finishing": True})


def _append(handle: IO[str], facts: dict[str, object]) -> None:
    """Append one line. A kill or a full disk may truncate the line; it then has no newline, and readers ignore it."""
    left = (json.dumps(facts) + "\n").encode()
    while left:
        left = left[os.write(handle.fileno(), left) :]
    os.fsync(handle.fileno())


def _lines(folder: str) -> list[bytes]:
    """The complete lines of xpc_run.json. The first line has the run's digest and settings. A second line says that the
    final model is being written."""
    try:
        with open(os.path.join(folder, MARKER), "rb") as handle:
            return [line for line in handle if line.endswith(b"\n")]
    except OSError:
        return []


_locked: IO[str] | None = None
"""The file xpc_run.json, which this process has locked. It stays open, because closing it would release the lock."""


def _lock(handle: IO[str]) -> bool:
    """Lock xpc_run.json. Returns False if another process holds the lock for longer than `LOCK_SECONDS`. A killed
    process holds its lock until its memory is freed."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        except OSError:  # some network file systems have no locks: run without
            return True


def _locked_marker(folder: str) -> IO[str]:
    """Open and lock xpc_run.json. Raises RunError if another process keeps it locked, or OSError."""
    handle = open(os.path.join(folder, MARKER), "a", encoding="utf-8")  # noqa: SIM115
    if _lock(handle):
        return handle
    handle.close()
    raise RunError(f"a run is training into {folder} now; end it, or name another output folder")


def _check_unlocked(folder: str) -> None:
    try:
        _locked_marker(folder).close()
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}") from error


def difference(bundle: Bundle) -> str | None:
    """How this run differs from the run in the output folder. "" if this run can resume it, None if there is no run."""
    marker = _marker(bundle)
    if marker is None or marker["bundle"] == bundle.digest:
        return "" if marker else None
    was = marker.get("settings")
    if not isinstance(was, dict):
        return ", whose settings are not recorded"
    now = same_run.settings(bundle)
    for feature in bundle.features:
        now |= feature.earlier_names(bundle, was, now)
    differs = same_run.differences(was, now, bundle.run["division"])
    return differs and f": {differs}"


def _marker(bundle: Bundle) -> dict[str, Any] | None:
    try:
        marker = json.loads(_lines(bundle.output_dir)[0])
        return dict(marker) if isinstance(marker["bundle"], str) else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
