"""The output folder: whose it is, and whether this run may begin or go on in it. Standard library only."""

from __future__ import annotations

import json
import os

from .bundle import Bundle
from .checkpoints import FOLDER, newest_complete
from .errors import RunError

MARKER = "xpc_run.json"
OWN = (MARKER, "metrics.jsonl", "runs", "README.md")
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
    if _owner(folder) is None:
        raise RunError(f"{folder} is not empty and holds no run of a bundle; name another output folder or empty it")
    if _owner(folder) != bundle.digest:
        raise RunError(f"{folder} holds a run of another bundle; name another output folder or empty it")
    if "summary.json" in held:
        raise RunError(f"{folder} holds this run, finished; name another output folder or empty it to train again")
    zero = run["distributed_type"] == "DEEPSPEED"
    checkpoint, notes = newest_complete(folder, run["world_size"], zero)
    if checkpoint is not None:
        return checkpoint, [*notes, f"going on from {os.path.basename(checkpoint)}"]
    foreign = [name for name in held if name not in OWN and not FOLDER.match(name)]
    if foreign:
        raise RunError(f"{folder} has no complete checkpoint to go on from and is not empty ({foreign[0]}); empty it")
    return None, [*notes, "no complete checkpoint to go on from: starting anew"]


def mark(bundle: Bundle) -> None:
    """Writes the marker that ties the folder to this bundle."""
    os.makedirs(bundle.output_dir, exist_ok=True)
    with open(os.path.join(bundle.output_dir, MARKER), "w", encoding="utf-8") as handle:
        handle.write(json.dumps({"bundle": bundle.digest, "target": bundle.target}) + "\n")


def _owner(folder: str) -> str | None:
    try:
        with open(os.path.join(folder, MARKER), encoding="utf-8") as handle:
            digest = json.load(handle)["bundle"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) else None
