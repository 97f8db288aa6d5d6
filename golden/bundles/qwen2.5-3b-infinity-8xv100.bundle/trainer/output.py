"""The output folder: whose it is, and whether this run may begin or go on in it. Standard library only."""

from __future__ import annotations

import fcntl
import json
import os
from typing import IO

from .bundle import Bundle
from .checkpoints import FOLDER, newest_complete, steps, weights_whole
from .errors import RunError

MARKER = "xpc_run.json"
OWN = (MARKER, "metrics.jsonl", "runs", "README.md", "_hub")
"""What a run leaves before its first checkpoint."""


def begin(bundle: Bundle) -> tuple[str | None, list[str]]:
    """The checkpoint to go on from (None: start anew) and sentences about it. Writes nothing.

    Raises RunError rather than reuse a folder in silence: transformers 5 has no guard of its own (RULES C13).
    """
    folder, run = bundle.output_dir, bundle.run
    held = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if not held:
        return None, []
    if run["resume"] != "auto":
        raise RunError(f"{folder} is not empty and this bundle does not resume; name another output folder or empty it")
    if owner(folder) is None:
        raise RunError(f"{folder} is not empty and holds no run of a bundle; name another output folder or empty it")
    if owner(folder) != bundle.digest:
        raise RunError(f"{folder} holds a run of another bundle; name another output folder or empty it")
    if "summary.json" in held:
        raise RunError(f"{folder} holds this run, finished; name another output folder or empty it to train again")
    if _in_use(folder):
        raise RunError(f"a run is training into {folder} now; end it, or name another output folder")
    zero = run["distributed_type"] == "DEEPSPEED"
    checkpoint, notes = newest_complete(folder, run["world_size"], zero)
    if checkpoint is not None:
        return checkpoint, [*notes, f"going on from {os.path.basename(checkpoint)}"]
    if run.get("full_state") is False and any(weights_whole(path) for _, path in steps(folder)):
        raise RunError(
            f"{folder} holds checkpoints of weights only, which training cannot go on from; "
            "name another output folder, or empty it to train anew"
        )
    foreign = [name for name in held if name not in OWN and not FOLDER.match(name)]
    if foreign:
        raise RunError(f"{folder} has no complete checkpoint to go on from and is not empty ({foreign[0]}); empty it")
    return None, [*notes, "no complete checkpoint to go on from: starting anew"]


def take(bundle: Bundle) -> None:
    """Writes the marker that ties the folder to this bundle, and keeps it locked as long as this process lives.

    Raises RunError when another process holds it. The kernel lets go of the lock when its process ends, however it
    ends, so nothing stale is ever left. A file system without locks runs without this guard.
    """
    global _held
    os.makedirs(bundle.output_dir, exist_ok=True)
    handle = open(os.path.join(bundle.output_dir, MARKER), "a", encoding="utf-8")  # noqa: SIM115
    if not _lock(handle):
        handle.close()
        raise RunError(f"a run is training into {bundle.output_dir} now; end it, or name another output folder")
    handle.truncate(0)
    handle.write(json.dumps({"bundle": bundle.digest, "target": bundle.target}) + "\n")
    handle.flush()
    _held = handle


_held: IO[str] | None = None
"""The locked marker of this process; closing it would give the folder free."""


def _lock(handle: IO[str]) -> bool:
    """False when another process has the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here (some network file systems)
        return True
    return True


def _in_use(folder: str) -> bool:
    try:
        with open(os.path.join(folder, MARKER), "a", encoding="utf-8") as handle:
            return not _lock(handle)
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}") from error


def owner(folder: str) -> str | None:
    """The digest of the bundle whose run a folder holds, or None where it holds none."""
    try:
        with open(os.path.join(folder, MARKER), encoding="utf-8") as handle:
            digest = json.load(handle)["bundle"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) else None
