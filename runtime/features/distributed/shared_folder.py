"""Check that all nodes have the same output folder: node 0 writes a temporary file, and the others look for it."""

import os
import secrets
import time

from ...core.feature import Bundle

PREFIX = ".xpc-seen-by-every-node-"
PATIENCE = 3.0
"""A file that another machine has written must appear within this many seconds: NFS caches a folder for as long."""


class Probe:
    """A temporary file with a unique name, in the output folder or, if that does not exist, in its nearest existing
    parent, which is `levels` levels above it.

    If the file cannot be written, `error` is the reason.
    """

    def __init__(self, bundle: Bundle) -> None:
        folder, self.levels = nearest_existing(bundle.output_dir)
        self.name = PREFIX + secrets.token_hex(8)
        self._path = os.path.join(folder, self.name)
        self.error = ""

    def __enter__(self) -> "Probe":
        try:
            with open(self._path, "x", encoding="utf-8"):
                pass
        except OSError as error:
            self.error = f"cannot write to {os.path.dirname(self._path)}: {error.strerror}"
        return self

    def __exit__(self, *_: object) -> None:
        if not self.error:
            os.unlink(self._path)


def nearest_existing(folder: str) -> tuple[str, int]:
    """Return a pair: the nearest existing folder at or above ``folder``, and its distance in levels."""
    levels = 0
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder, levels = os.path.dirname(folder), levels + 1
    return folder, levels


def sees(bundle: Bundle, name: str, levels: int) -> bool:
    """Whether this node finds the file ``name`` in the folder that is ``levels`` levels above its own output folder."""
    if not name.startswith(PREFIX) or os.sep in name:
        return False
    folder = bundle.output_dir
    for _ in range(levels):
        folder = os.path.dirname(folder)
    until = time.monotonic() + PATIENCE
    while not os.path.exists(os.path.join(folder, name)):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def needed(bundle: Bundle) -> str:
    """The reason why the nodes must share the output folder; "" for a run that writes no checkpoints.

    Under ZeRO and sharded FSDP, each process writes its part of the weights or the optimizer. Under every strategy,
    each process writes its random state (transformers, `_save_rng_state`). In a complete checkpoint, all these files
    are in one folder.
    """
    if bundle.arguments.get("save_strategy", "steps") == "no" or bundle.arguments.get("save_only_model"):
        return ""
    return "every process writes its part of a checkpoint there"
