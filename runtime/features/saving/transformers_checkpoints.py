"""Check transformers' unsharded checkpoints: complete weights, schedule and optimizer."""

import json
import os

from ...core.checkpoints import UNREADABLE, archive_complete, schedule
from ...core.feature import Feature

WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
INDEX = "model.safetensors.index.json"


class TransformersCheckpoints(Feature):
    """Hooks for a run with unsharded checkpoints."""

    def check_checkpoint(self, path: str, world: int) -> str | None:
        """Describe what is wrong with the weights, the schedule or the optimizer that transformers has written. None if
        nothing is wrong."""
        short = schedule(path) or _weights(path)
        if short is None and not archive_complete(os.path.join(path, "optimizer.pt")):
            short = "optimizer.pt is missing or cut off"
        return short


def weights_complete(path: str) -> bool:
    """Whether the folder has complete weights, with or without the other files that a resumed run needs."""
    try:
        return os.path.isdir(path) and _weights(path) is None
    except UNREADABLE:
        return False


def _weights(path: str) -> str | None:
    """Describe what is wrong with the weights that transformers has written; None if nothing is wrong."""
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
        if not safetensors_complete(os.path.join(path, name)):
            return f"{name} is missing or cut off"
    return None


def safetensors_complete(path: str) -> bool:
    """Whether the file has the length that its header states (safetensors format: 8 bytes length, JSON, data)."""
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
