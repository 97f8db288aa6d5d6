"""Compare the files of local models (weights, tokenizer, adapter) with the digests in bundle.toml, before the launch.

A file is not read again if its size, times and inode are unchanged since an earlier command (``known_digests``).
Hashing the other files costs little time, because the run has to read these files from the disk anyway.
"""

import os
import queue
import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ...core import progress
from ...core.bundle import manifest_digests
from ...core.errors import RunError
from ...core.feature import Bundle, Feature
from . import known_digests, local_files, model_folder

THREADS = 8
BLOCK = 2**22
DIGITS = 16
"""A message shows this many digits of a digest."""
WAY_OUT = "put the old files back, or compile the spec again with the current files"


class ModelFiles(Feature):
    """Hooks for a run with a local model, teacher or adapter."""

    def check_files(self, bundle: Bundle, digests: Mapping[str, str]) -> dict[str, str]:
        """A finding for each folder with a changed, an additional or a missing file."""
        stated = weights(bundle.folder)
        found = {}
        for folder in folders(bundle):
            own = {name[len(folder) + 1 :]: one for name, one in stated.items() if name.startswith(f"{folder}/")}
            if own:  # the folder did not exist at compile time, so bundle.toml has no digests for its files
                try:
                    found[folder] = finding(folder, local_files.find(bundle.folder, folder), own)
                except RunError:  # a missing folder is reported when the model is loaded
                    continue
        return found


def weights(bundle: str) -> dict[str, str]:
    """The digests of local models' files, from bundle.toml. Empty if bundle.toml is missing or unreadable."""
    return manifest_digests(bundle, "weights")


def folders(bundle: Bundle) -> list[str]:
    """The folders of local models as the spec names them: the model, the teacher, the continued adapter."""
    lora: Mapping[str, Any] = bundle.lora or {}
    used = [bundle.model, bundle.plan["method"]["teacher"], lora.get("continued")]
    return list(dict.fromkeys(str(one["path"]).rstrip("/") for one in used if one and one["path"]))


def finding(folder: str, place: str, stated: Mapping[str, str]) -> str:
    """Describe how the files in ``place`` differ from the digests in bundle.toml; "" if they do not differ."""
    there = listed(place)
    actual = digests({name: os.path.join(place, name) for name in there})
    wrong = [
        f"{folder}/{name} has sha256 {actual[name][:DIGITS]}, and had {stated[name].removeprefix('sha256:')[:DIGITS]}"
        for name in there
        if name in stated and f"sha256:{actual[name]}" != stated[name]
    ]
    wrong += [f"{folder}/{name} is missing now, but existed" for name in sorted(stated) if name not in there]
    wrong += [f"{folder}/{name} exists now, but did not exist" for name in there if name not in stated]
    more = f" ({len(wrong) - 1} more differ)" if len(wrong) > 1 else ""
    return f"{wrong[0]} when this bundle was compiled{more}; {WAY_OUT}" if wrong else ""


def listed(place: str) -> list[str]:
    """The files in a model's folder that a run reads, also those in its subfolders and in linked folders."""
    names = filter(model_folder.is_read, model_folder.files(place))
    return [one for one in names if os.path.isfile(os.path.join(place, one))]


def digests(paths: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of each file by name, computed by several threads. If a file is unreadable, the value says why."""
    found: dict[str, str] = {}
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name, path in paths.items():
        known = known_digests.recall(path)
        if known is None:
            left.put(name)
        else:
            found[name] = known
    if left.empty():
        return found
    unread = [path for name, path in paths.items() if name not in found]
    with progress.phase("hashing the local model's files, in MiB"):
        progress.Phase.total = sum(map(_size, unread)) >> 20
        threads = [threading.Thread(target=_worker, args=(left, paths, found), daemon=True)
                   for _ in range(min(THREADS, os.cpu_count() or 1, len(unread)))]  # fmt: skip
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    return found


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _worker(left: "queue.SimpleQueue[str]", paths: Mapping[str, str], found: dict[str, str]) -> None:
    while True:
        try:
            name = left.get_nowait()
        except queue.Empty:
            return
        found[name] = _digest(paths[name])


def _digest(path: str) -> str:
    total = sha256()
    try:
        before = known_digests.stamp(path)
        with open(path, "rb") as handle:
            while block := handle.read(BLOCK):
                total.update(block)
                progress.Phase.done += len(block) >> 20
    except OSError as error:
        return f"({error.strerror})"
    known_digests.keep(path, before, total.hexdigest())
    return total.hexdigest()
