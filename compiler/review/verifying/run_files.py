"""Compare the files of a finished run with the digests in its summary.json, and compare summary.json with
metrics.jsonl.

In summary.json, `files` has the size and the digest of each file, and `seal` is the digest of summary.json without the
line of the seal. To compute the digest of a file, its parts of 64 MiB are digested with SHA-256, and then these digests
together, as for checkpoints (runtime/core/checkpoint_integrity.py).
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from xpc.compiler.files.folder_contents import LARGEST_METRICS, parts, read, walk, without_following
from xpc.runtime.features.launch.model_folder import RECORDS

SUMMARY, METRICS, RUN = "summary.json", "metrics.jsonl", "xpc_run.json"
SEAL = re.compile(rb',\n  "seal": "(sha256:[0-9a-f]{64})"\n}\n\Z')
PART, BLOCK = 64 * 2**20, 2**20
NOT_FINAL = ("_saving/", "_hub", ".", "checkpoint-", "runs/", "eval/")
"""Beginnings of the names of files whose digests are not in the summary. Either these files change after the run, or
only a resumed run reads them (runtime/core/checkpoint_integrity.py).
"""
REWRITTEN = frozenset({*RECORDS, "xpc_files.json"})
"""Files that may change after the run, because a later launch or evaluation writes them."""
MOST = 100_000
"""At most this many folders of a run are searched for added files."""
LONGEST = 4096
"""Maximum length of a path; Linux has the same limit."""
SHOWN = 5
"""A report names at most this many files that were edited, are missing or were added."""


def differences(out: str, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each file of a run that was edited, removed or added, and a sentence if summary.json itself
    was edited.
    """
    files = summary.get("files")
    if not isinstance(files, dict):
        if any(os.path.lexists(os.path.join(out, name)) for name in (METRICS, "model.safetensors", RUN)):
            yield f"{SUMMARY} has no digests of the run's files: it was edited, or a bundle of an older xpc wrote it"
        return
    text = read(os.path.join(out, SUMMARY))
    end = SEAL.search(text)
    above = sha256(text[: end.start()] + b"\n}").hexdigest() if end else ""
    if end is None or end[1].decode() != f"sha256:{above}":
        yield f"{SUMMARY} was edited after the run: its seal is not the digest of its text"
    found = list(_edited(out, files))
    yield from found[:SHOWN]
    if len(found) > SHOWN:
        yield f"{len(found) - SHOWN} more files differ"
    if METRICS in files and not found:
        yield from _disagreements(out, summary)


def _edited(out: str, files: Mapping[str, Any]) -> Iterator[str]:
    for name, stated in files.items():
        if not _is_inside(name) or any(os.path.islink(path) for path in parts(out, name)):
            yield f"{name} is a link or leads out of the run's folder"
            continue
        seal = _seal(os.path.join(out, name))
        if seal is None:
            yield f"{name} is missing"
        elif seal != stated:
            yield f"{name} was edited after the run"
    yield from _added(out, files)


def _added(out: str, files: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each file or link in the output folder that the run did not write, and for each folder that
    cannot be read.
    """
    unreadable: list[OSError] = []
    for count, (where, folders, names) in enumerate(walk(out, unreadable.append)):
        if count >= MOST:
            yield f"the run's folder has more than {MOST:,} folders, and the others are not searched"
            break
        prefix = os.path.relpath(where, out).replace(os.sep, "/") + "/"
        prefix = "" if prefix == "./" else prefix
        folders[:] = sorted(one for one in folders if not _is_excluded(f"{prefix}{one}/"))
        links = [one for one in folders if os.path.islink(os.path.join(where, one))]
        added = (prefix + one for one in (*links, *sorted(names)) if not _is_excluded(prefix + one))
        yield from (f"{name} was added after the run" for name in added if name not in files)
    yield from (f"{os.path.relpath(error.filename, out)} cannot be read: {error.strerror}" for error in unreadable)


def _is_excluded(name: str) -> bool:
    return name.startswith(NOT_FINAL) or name in REWRITTEN


def _is_inside(name: str) -> bool:
    try:
        written = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # no file can have this name, which has half of a surrogate pair
        written = False
    return (
        written
        and len(name) <= LONGEST
        and not os.path.isabs(name)
        and all(part not in ("", ".", "..") for part in name.split("/"))
    )


def _seal(path: str) -> list[object] | None:
    """The size and the digest of a file. None if there is no regular file at the path."""
    total = sha256()
    try:
        handle = open(path, "rb", opener=without_following)  # noqa: SIM115
    except OSError:
        return None
    with handle:
        status = os.fstat(handle.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        for start in range(0, status.st_size, PART):
            part, left = sha256(), min(PART, status.st_size - start)
            while left and (block := handle.read(min(left, BLOCK))):
                part.update(block)
                left -= len(block)
            total.update(part.digest())
        return [status.st_size, total.hexdigest()]


def _disagreements(out: str, summary: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each value in summary.json that contradicts metrics.jsonl."""
    expected: dict[str, object] = {"first_loss": None, "last_loss": None, "tokens": None}
    logged = False
    try:
        for line in read(os.path.join(out, METRICS), LARGEST_METRICS).split(b"\n"):
            event = json.loads(line or b"0")
            if not isinstance(event, dict):
                continue
            if "loss" in event:
                expected["last_loss"] = event["loss"]
                expected["first_loss"] = expected["first_loss"] if logged else event["loss"]
                logged = True
            if event.get("tokens") is not None:
                expected["tokens"] = event["tokens"]
    except (ValueError, RecursionError):
        yield f"{METRICS} cannot be read"
        return
    except OSError as error:
        yield f"{METRICS} cannot be read: {error.strerror or error}"
        return
    for name, value in expected.items():
        if summary.get(name) != value:
            yield f"{name} is {summary.get(name)}, but {METRICS} has {value}"
