"""Write checkpoints atomically: the files and a record of their digests go to a staging folder, which is then renamed.
Standard library only.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from .metrics_file import replace

STAGING = "_saving"
"""Folder inside the output folder, for checkpoints that are being written or deleted."""
RECORD = "xpc_files.json"
"""File in a checkpoint with the size and digest of every other file."""
NOT_FINAL = ("_saving/", "_hub", ".", "checkpoint-", "runs/", "eval/", "summary.json", "xpc_run.json")
"""Beginnings of names of files that ``final_files`` skips: they change later, or matter only for resuming."""
WRITER = re.compile(r"(?:(?:bf16_|fp16_)?zero_pp_rank_|rng_state_|rollouts_|reference_|__)(\d+)[_.]")
"""Matches names of files that each process writes for itself, with its rank: rank 1 writes `rng_state_1.pth`."""
BLOCK = 1 << 20
PART = 64 << 20
"""Sizes in bytes: a thread hashes a part of 64 MiB (PART), which it reads in blocks of 1 MiB (BLOCK)."""

Seal = tuple[int, str]
"""The size of a file in bytes, and its sha256 in hex."""


def staging(output_dir: str) -> str:
    """The staging folder of an output folder."""
    return os.path.join(output_dir, STAGING)


def clear(output_dir: str) -> None:
    """Delete the files of an interrupted write or deletion, and safetensors' temporary files `.tmpXXXXXX`."""
    shutil.rmtree(staging(output_dir), ignore_errors=True)
    for left in (*Path(output_dir).glob(".tmp??????"), *Path(output_dir).glob("merged/.tmp??????")):
        left.unlink(missing_ok=True)


def final_files(output_dir: str) -> dict[str, Seal]:
    """Sizes and digests of a finished run's files: weights, config, tokenizer, metrics. Raises OSError."""
    return _hashed(output_dir, [name for name in names(output_dir) if not name.startswith(NOT_FINAL)])


def seal(folder: str, rank: int) -> dict[str, Seal]:
    """Flush and hash the files that process ``rank`` wrote. Returns size and digest by name. Raises OSError."""
    return _sealed(folder, [name for name in names(folder) if _writer(name) == rank])


def finish(output_dir: str, name: str, seals: Mapping[str, Seal]) -> str:
    """On process 0: hash the files that ``seals`` lacks, write all digests, and rename the folder. Raises OSError."""
    folder = os.path.join(staging(output_dir), name)
    present = names(folder)
    known = {**seals, **_sealed(folder, [one for one in present if one not in seals])}
    missing = [one for one in seals if one not in present]
    if missing:
        raise FileNotFoundError(2, "a file of the checkpoint is missing", missing[0])
    set_default_mode(folder, present)
    replace(os.path.join(folder, RECORD), [json.dumps({"files": dict(sorted(known.items()))}, indent=1)])
    for place in sorted({os.path.dirname(os.path.join(folder, one)) for one in known} | {folder}):
        _flush(place)
    target = os.path.join(output_dir, name)
    if os.path.exists(target):  # move away an unusable checkpoint of the same step
        os.rename(target, os.path.join(staging(output_dir), f"old-{name}"))
    os.rename(folder, target)
    _flush(output_dir)
    clear(output_dir)
    return target


def set_default_mode(folder: str, written: Iterable[str]) -> None:
    """Give weight files the default permissions of new files: safetensors makes files that only the owner can read."""
    mask = os.umask(0)
    os.umask(mask)
    for name in written:
        if name.endswith(".safetensors"):
            os.chmod(os.path.join(folder, name), 0o666 & ~mask)


def broken(path: str, digests: bool) -> str | None:
    """Describe how a checkpoint differs from its record of digests. None if it does not differ, or has no record. With
    ``digests``, all bytes are compared, otherwise only sizes.

    Raises OSError.
    """
    try:
        files = json.loads(Path(path, RECORD).read_text(encoding="utf-8"))["files"]
        known = {str(name): (int(size), str(digest)) for name, (size, digest) in files.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{RECORD} is cut off"
    for name, (size, _) in known.items():
        try:
            found = os.path.getsize(os.path.join(path, name))
        except OSError:
            return f"{name} is missing"
        if found != size:
            return f"{name} is cut off ({found:,} of {size:,} bytes)" if found < size else f"{name} has grown"
    for name, (_, digest) in _hashed(path, known).items() if digests else ():
        if digest != known[name][1]:
            return f"{name} is corrupted (its sha256 differs from the recorded one)"
    return None


def names(folder: str) -> list[str]:
    """The sorted relative paths of the files below a folder, except the record of digests."""
    files = (str(one.relative_to(folder)) for one in Path(folder).rglob("*") if not one.is_dir())
    return sorted(one for one in files if one != RECORD)


def _writer(name: str) -> int:
    """The rank of the process that wrote a file: the number in the file's name, or 0 if there is none."""
    number = WRITER.match(os.path.basename(name))
    return int(number[1]) if number else 0


def _sealed(folder: str, chosen: list[str]) -> dict[str, Seal]:
    for name in chosen:
        _flush(os.path.join(folder, name))
    return _hashed(folder, chosen)


def _hashed(folder: str, chosen: Iterable[str]) -> dict[str, Seal]:
    """Sizes and digests of files by name. A digest is the sha256 of the sha256 digests of the file's 64 MiB parts."""
    paths = [os.path.join(folder, name) for name in chosen]
    sizes = [os.path.getsize(path) for path in paths]
    parts = [(path, start) for path, size in zip(paths, sizes) for start in range(0, size, PART)]
    shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    with ThreadPoolExecutor(max(1, min(8, len(parts), (os.cpu_count() or 1) // shared))) as pool:
        digests = iter(list(pool.map(lambda one: _hash(*one), parts)))
    whole = [sha256(b"".join(next(digests) for _ in range(0, size, PART))).hexdigest() for size in sizes]
    return dict(zip(chosen, zip(sizes, whole)))


def _hash(path: str, start: int) -> bytes:
    total, left, block = sha256(), PART, memoryview(bytearray(BLOCK))
    with open(path, "rb", buffering=0) as handle:
        handle.seek(start)
        while left and (read := handle.readinto(block[: min(left, BLOCK)])):
            total.update(block[:read])
            left -= read
    return total.digest()


def _flush(path: str) -> None:
    """Flush a file or folder to the disk. A folder that cannot be flushed (some network file systems) is skipped."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not os.path.isdir(path):
            raise
    finally:
        os.close(handle)
