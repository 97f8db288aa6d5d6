"""Find the newest complete checkpoint to resume from. Standard library only."""

import json
import os
import re
import zipfile
from collections.abc import Callable

from .checkpoint_integrity import RECORD, broken

FOLDER = re.compile(r"checkpoint-(\d+)$")
UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Exceptions that reading a damaged file raises: invalid UTF-8, JSON of another shape, impossible file names."""


def steps(output_dir: str) -> list[tuple[int, str]]:
    """The checkpoint folders as (step, absolute path), newest first."""
    entries = os.scandir(output_dir) if os.path.isdir(output_dir) else ()
    matches = [(FOLDER.match(entry.name), entry) for entry in entries]
    return sorted(((int(match[1]), entry.path) for match, entry in matches if match and entry.is_dir()), reverse=True)


def schedule(path: str) -> str | None:
    """What is wrong with a checkpoint's scheduler.pt (the state of the learning-rate schedule), or None."""
    text = "scheduler.pt is missing or cut off (training cannot resume from a checkpoint of weights only)"
    return None if archive_complete(os.path.join(path, "scheduler.pt")) else text


States = Callable[[str, int], str | None]
"""Gets a checkpoint's path and a number of processes; returns what is wrong with weights or optimizer, or None."""


def newest_complete(output_dir: str, world: int, states: States, digests: bool = False) -> tuple[str | None, list[str]]:
    """Return a pair: the newest complete checkpoint, and a sentence for each newer checkpoint that was skipped.

    With ``digests``, all bytes are compared with the checkpoint's record of digests, otherwise only sizes. A checkpoint
    without a record is used only if no checkpoint with a record is complete.
    """
    skipped: list[str] = []
    unproven: tuple[str, list[str]] | None = None
    for step, path in steps(output_dir):
        reason = _unusable(path, step, world, states, digests)
        name = os.path.basename(path)
        if reason is None and os.path.isfile(os.path.join(path, RECORD)):
            return path, skipped
        if reason is None:
            reason = f"its record {RECORD} is missing"
            note = f"{name} has no {RECORD}: the structure of its files was checked, not every byte"
            unproven = unproven or (path, [*skipped, note])
        skipped.append(f"{name} is skipped: {reason}")
    return unproven or (None, skipped)


def _unusable(path: str, step: int, world: int, states: States, digests: bool) -> str | None:
    """The reason why training cannot resume from a checkpoint, or None. Damaged files never raise an exception.

    Two checks are needed. The record of digests proves that the files are as they were written; `missing` proves that
    they suffice for this step and ``world`` processes. Without a record, only `missing` checks.
    """
    for where, _, names in os.walk(path):
        for name in names:
            if not os.path.isfile(os.path.join(where, name)):  # reading a named pipe would block forever
                return f"{name} is not a regular file"
    try:
        return missing(path, step, world, states) or broken(path, digests)
    except UNREADABLE as error:
        return f"one of its files cannot be read ({type(error).__name__}: {error})"


def missing(path: str, step: int, world: int, states: States) -> str | None:
    """Describe what a checkpoint lacks for a run of ``world`` processes; None if it is complete.

    transformers writes trainer_state.json last (Trainer._save_checkpoint, 4.52 and 5.23).
    """
    try:
        with open(os.path.join(path, "trainer_state.json"), encoding="utf-8") as handle:
            state = json.load(handle)
    except OSError:
        return "trainer_state.json is missing"
    except ValueError:
        return "trainer_state.json is cut off"
    if not isinstance(state, dict) or state.get("global_step") != step:
        return "trainer_state.json belongs to another step"
    for name in sorted(os.listdir(path)):
        # Each process writes its own random state. The file may be missing: process 0 does not wait for it, and it may
        # be on another machine. transformers warns of a missing file; only a truncated file is an error.
        if (name.startswith("rng_state") or name == "scaler.pt") and not archive_complete(os.path.join(path, name)):
            return f"{name} is cut off"
    return states(path, world)


def archive_complete(path: str) -> bool:
    """Whether a file that torch.save wrote is complete. Such a file is a zip archive, with its directory at the end."""
    return os.path.isfile(path) and zipfile.is_zipfile(path)
