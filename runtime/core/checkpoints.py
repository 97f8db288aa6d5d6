"""Which checkpoint can be gone on from: the newest one that is whole. Standard library only."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable

from .checkpoint_integrity import RECORD, broken, has_record

WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
INDEX = "model.safetensors.index.json"
FOLDER = re.compile(r"checkpoint-(\d+)$")
UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged file raises: text that is no UTF-8, JSON of another shape, names that no file can have."""


def steps(output_dir: str) -> list[tuple[int, str]]:
    """The checkpoint folders as (step, absolute path), newest first."""
    if not os.path.isdir(output_dir):
        return []
    found = []
    for name in os.listdir(output_dir):
        match = FOLDER.match(name)
        path = os.path.join(output_dir, name)
        if match and os.path.isdir(path):
            found.append((int(match.group(1)), path))
    return sorted(found, reverse=True)


def schedule(path: str) -> str | None:
    """What is wrong with the schedule of learning rates, or None."""
    if whole(os.path.join(path, "scheduler.pt")):
        return None
    return "scheduler.pt is missing or cut off (a checkpoint of weights only cannot be gone on from)"


def plain(path: str, world: int) -> str | None:
    """What is wrong with weights, schedule and optimizer as transformers writes them, or None."""
    short = schedule(path) or _weights(path)
    if short is None and not whole(os.path.join(path, "optimizer.pt")):
        short = "optimizer.pt is missing or cut off"
    return short


States = Callable[[str, int], str | None]
"""What is wrong with the states of a checkpoint that ``world`` processes will read: `plain`, or that of a strategy."""


def newest_complete(
    output_dir: str, world: int, states: States = plain, digests: bool = False
) -> tuple[str | None, list[str]]:
    """The newest whole checkpoint, and a sentence for each newer one that was passed over.

    With ``digests`` every byte of it is held against what was written; without, the sizes of its files are. One that
    has lost the record of what was written proves nothing: it is gone on from only where no other is whole.
    """
    skipped: list[str] = []
    unproven: tuple[str, list[str]] | None = None
    for step, path in steps(output_dir):
        reason = _unfit(path, step, world, states, digests)
        name = os.path.basename(path)
        if reason is None and has_record(path):
            return path, skipped
        if reason is None:
            reason = f"its record {RECORD} is missing"
            told = f"{name} has no {RECORD}: the structure of its files was looked at, not every byte"
            unproven = unproven or (path, [*skipped, told])
        skipped.append(f"{name} is skipped: {reason}")
    return unproven or (None, skipped)


def _unfit(path: str, step: int, world: int, states: States, digests: bool) -> str | None:
    """Why a checkpoint cannot be gone on from, or None. Whatever its files hold, this is an answer and no exception."""
    try:
        return missing(path, step, world, states) or broken(path, digests)
    except UNREADABLE as error:
        return f"a file of it cannot be read ({type(error).__name__}: {error})"


def missing(path: str, step: int, world: int, states: States = plain) -> str | None:
    """What keeps this checkpoint from being gone on from, or None. ``world`` counts the processes that will read it.

    transformers writes weights, then optimizer and scheduler, then trainer_state.json (Trainer._save_checkpoint, 4.52
    and 5.23), so a run that was killed while saving leaves no readable trainer_state.json or a short file before it.
    """
    try:
        with open(os.path.join(path, "trainer_state.json"), encoding="utf-8") as handle:
            state = json.load(handle)
    except OSError:
        return "trainer_state.json is missing"
    except ValueError:
        return "trainer_state.json is cut off"
    if not isinstance(state, dict) or state.get("global_step") != step:
        return "trainer_state.json is of another step"
    for name in sorted(os.listdir(path)):
        # Each process writes its own random state, and process 0 does not wait for them before trainer_state.json. A
        # missing one is no harm: transformers tells and goes on; on several machines each has only its own.
        if (name.startswith("rng_state") or name == "scaler.pt") and not whole(os.path.join(path, name)):
            return f"{name} is cut off"
    return states(path, world)


def weights_whole(path: str) -> bool:
    """True when the folder has whole weights to load, whether or not training can go on from it."""
    try:
        return os.path.isdir(path) and _weights(path) is None
    except UNREADABLE:
        return False


def _weights(path: str) -> str | None:
    """What is wrong with the weights as transformers writes them, or None."""
    names = os.listdir(path)
    if INDEX in names:
        try:
            with open(os.path.join(path, INDEX), encoding="utf-8") as handle:
                files = sorted(set(json.load(handle)["weight_map"].values()))
        except (OSError, ValueError, KeyError):
            return f"{INDEX} is cut off"
    else:
        files = [name for name in WEIGHTS if name in names][:1]
    if not files:
        return "the weights are missing"
    for name in files:
        if not safetensors_whole(os.path.join(path, name)):
            return f"{name} is missing or cut off"
    return None


def safetensors_whole(path: str) -> bool:
    """True when the file's length is what its header says (safetensors format: 8 bytes length, JSON, data)."""
    try:
        with open(path, "rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if length > os.path.getsize(path):
                return False
            header = json.loads(handle.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return os.path.getsize(path) == 8 + length + max(ends, default=0)
    except UNREADABLE:
        return False


def whole(path: str) -> bool:
    """True for an archive that is not cut off: torch.save writes a zip file, whose directory stands at the end."""
    return os.path.isfile(path) and zipfile.is_zipfile(path)
