"""The output folder: whose it is, and whether this run may begin or go on in it. Standard library only."""

import errno
import fcntl
import json
import os
import time
from typing import IO, Any

from . import same_run
from .checkpoint_integrity import STAGING
from .checkpoints import FOLDER, newest_complete
from .errors import RunError
from .feature import Bundle

MARKER = "xpc_run.json"
RUN_FILES = (MARKER, "metrics.jsonl", "metrics.jsonl.part", "runs", "README.md", "_hub", STAGING)
"""What a run leaves before its first checkpoint."""
LOCK_SECONDS = 5
"""Seconds."""


class Finished(Exception):
    """The run is done: there is nothing to start, and nothing is wrong."""


def check_unfinished(bundle: Bundle) -> None:
    """Raises Finished where this run is done: another process may have ended it while this one waited."""
    folder = bundle.output_dir
    if os.path.exists(os.path.join(folder, "summary.json")) and difference(bundle) == "":
        raise Finished(f"{folder} holds this run, finished; name another output folder or empty it to train again")


def begin(bundle: Bundle, digests: bool = False) -> tuple[str | None, list[str]]:
    """The checkpoint to go on from (None: start anew) and sentences about it. Writes nothing. Raises RunError.

    With ``digests`` every byte of the checkpoint is looked at, which takes as long as reading it does.
    """
    folder, run = bundle.output_dir, bundle.run
    present = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if not present or (present == [MARKER] and not _lines(folder)):
        return None, []  # the second: killed before its marker was whole, which is the first thing that a run writes
    if present == [MARKER] and difference(bundle) is not None:  # refused before its first step: nothing is lost
        _check_unlocked(folder)
        return None, ["no complete checkpoint to go on from: starting anew"]
    if run["resume"] != "auto":
        raise RunError(f"{folder} is not empty and this bundle does not resume; name another output folder or empty it")
    differs = difference(bundle)
    if differs is None:
        raise RunError(f"{folder} is not empty and holds no run of a bundle; name another output folder or empty it")
    if differs:
        raise RunError(f"{folder} holds a run of another bundle{differs}; name another output folder or empty it")
    _check_unlocked(folder)
    check_unfinished(bundle)
    checkpoint, notes = newest_complete(folder, run["world_size"], bundle.check_checkpoint, digests)
    if checkpoint is not None:
        was = (_marker(bundle) or {}).get("settings") or {}
        division = same_run.divided_otherwise(was, same_run.settings(bundle)) if was else []
        return checkpoint, [*notes, *division, f"going on from {os.path.basename(checkpoint)}"]
    for feature in bundle.features:
        feature.no_checkpoint_found(bundle, folder)
    foreign = [name for name in present if name not in RUN_FILES and not FOLDER.match(name)]
    if foreign and len(_lines(folder)) < 2:
        raise RunError(f"{folder} has no complete checkpoint to go on from and is not empty ({foreign[0]}); empty it")
    return None, [*notes, "no complete checkpoint to go on from: starting anew"]


def lock(bundle: Bundle) -> None:
    """Writes the marker that ties the folder to this bundle, and keeps it locked as long as this process lives.

    Raises RunError when another process holds it, or has finished the run by now, and where nothing can be written.
    """
    global _locked
    try:
        os.makedirs(bundle.output_dir, exist_ok=True)
        handle = open(os.path.join(bundle.output_dir, MARKER), "a", encoding="utf-8")  # noqa: SIM115
        if not _lock(handle, LOCK_SECONDS):
            handle.close()
            raise RunError(f"a run is training into {bundle.output_dir} now; end it, or name another output folder")
        check_unfinished(bundle)
        if difference(bundle) != "":
            handle.truncate(0)
            _append(handle, {"bundle": bundle.digest, "target": bundle.target, "settings": same_run.settings(bundle)})
    except OSError as error:
        why = f"cannot write to {bundle.output_dir}: {error.strerror}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise RunError(f"{why}; free some space, and the same command starts anew" if full else why) from error
    _locked = handle
    os.register_at_fork(after_in_child=handle.close)  # a process that loads data may live longer than this one


def finishing(bundle: Bundle) -> None:
    """Notes that training is done and the final model is being written: from here on its files are this run's own."""
    if _locked is not None:
        _append(_locked, {"finishing": True})


def _append(handle: IO[str], facts: dict[str, object]) -> None:
    """One more line, which counts when its end is there: a kill or a full disk can leave the first pages of it."""
    left = (json.dumps(facts) + "\n").encode()
    while left:
        left = left[os.write(handle.fileno(), left) :]
    os.fsync(handle.fileno())


def _lines(folder: str) -> list[bytes]:
    """The whole lines of the marker: whose run it is, and that its final model is being written."""
    try:
        with open(os.path.join(folder, MARKER), "rb") as handle:
            return [line for line in handle if line.endswith(b"\n")]
    except OSError:
        return []


_locked: IO[str] | None = None
"""The locked marker of this process; closing it would give the folder free."""


def _lock(handle: IO[str], patience: float = 0) -> bool:
    """False when another process has the lock, and keeps it for ``patience`` seconds: one that was killed may still be
    giving its memory back."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        except OSError:  # no locks here (some network file systems)
            return True


def _check_unlocked(folder: str) -> None:
    try:
        with open(os.path.join(folder, MARKER), "a", encoding="utf-8") as handle:
            if not _lock(handle, LOCK_SECONDS):
                raise RunError(f"a run is training into {folder} now; end it, or name another output folder")
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}") from error


def difference(bundle: Bundle) -> str | None:
    """How the run of the output folder differs from this one: "" where it can go on, None where there is none."""
    marker = _marker(bundle)
    if marker is None or marker["bundle"] == bundle.digest:
        return "" if marker else None
    was = marker.get("settings")
    if not isinstance(was, dict):
        return ", which does not say how it differs"
    differs = same_run.differences(was, same_run.settings(bundle), bundle.run["division"])
    return differs and f": {differs}"


def _marker(bundle: Bundle) -> dict[str, Any] | None:
    try:
        marker = json.loads(_lines(bundle.output_dir)[0])
        return dict(marker) if isinstance(marker["bundle"], str) else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
