"""What a reading of a data file found, for the next check of the same file: sixty-four MiB are read once.

An entry holds the file's digest and the surveys of its rows (`survey.py`), under the name of its path and of this
version. It counts only while size, times of change and inode are those that the file had before and after it was read,
and it is not written for a file that was changed just now: a change within one tick of the file system's clock would
not show. Nothing here is needed for a right answer: whatever goes wrong means that the file is read. No link is
followed, and nobody else can read or write what is kept.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from hashlib import sha256

from xpc.compiler.files import cache
from xpc.compiler.spec.survey import Broken, Survey, Tally
from xpc.grammar.record import mutable, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 256
"""Entries kept."""
LARGEST = 2**20
"""Bytes of an entry that is kept."""
SETTLED = 2.0
"""Seconds since a file's last change after which another one shows in its times, on any file system."""
Stamp = tuple[str, float]
"""The signature of a file, as the cache of checks has it, and when it last changed."""


@record
class Known:
    """What is remembered of a file: the digest of its bytes, and what its rows are."""

    digest: str
    survey: Survey


def stamp(path: str) -> Stamp | None:
    """How a regular file is now; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return cache.signature(found), max(found.st_mtime, found.st_ctime)


@mutable
class Memory:
    """Entries in one folder, which is made when the first is kept."""

    folder: str

    def recall(self, path: str, shape: str, names: tuple[str, ...]) -> Known | None:
        """What is known of the file as it stands, or None."""
        now = stamp(path)
        entry = cache.read(self.folder, _name(path)) if now is not None else None
        try:
            if entry is None or now is None or entry["stamp"] != now[0]:
                return None
            return Known(str(entry["sha256"]), _survey(entry["surveys"][_kind(shape, names)]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def stamp(self, path: str) -> Stamp | None:
        """How the file is before it is read (`stamp`)."""
        return stamp(path)

    def keep(
        self, path: str, before: Stamp | None, shape: str, names: tuple[str, ...], digest: str, found: Survey
    ) -> None:
        """Remembers what a reading found that began when the file's stamp was `before`. Never raises."""
        if before is None or stamp(path) != before or before[1] > time.time() - SETTLED:
            return
        entry = cache.read(self.folder, _name(path))
        surveys = entry.get("surveys") if entry is not None and entry.get("stamp") == before[0] else None
        surveys = dict(surveys) if isinstance(surveys, dict) and len(surveys) < 16 else {}
        surveys[_kind(shape, names)] = _plain(found)
        text = json.dumps({"stamp": before[0], "sha256": digest, "surveys": surveys})
        if len(text) < LARGEST:
            cache.keep(self.folder, _name(path), text, MOST)


def standard() -> Memory | None:
    """The memory beside the cache of checks, or None where that is off (XPC_CACHE=off)."""
    where = cache.folder("data")
    return None if where is None else Memory(where)


def _name(path: str) -> str:
    """The entry of a file, for this version of what reads it."""
    here = os.path.dirname(os.path.abspath(__file__))
    parts = [os.path.abspath(path)]
    for name in ("reader.py", "survey.py", "row_shapes.py", "survey_cache.py"):
        found = os.stat(os.path.join(here, name))
        parts.append(f"{name}:{found.st_mtime_ns}:{found.st_size}")
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _kind(shape: str, names: tuple[str, ...]) -> str:
    return json.dumps([shape, *names])


def _plain(survey: Survey) -> dict[str, object]:
    """A survey as JSON."""
    broken = survey.broken
    return {
        "rows": survey.rows,
        "columns": survey.columns,
        "broken": None if broken is None else [broken.row, broken.line, broken.why, broken.encoding],
        "wrong": survey.wrong,
        "talks": survey.talks,
        "tallies": {name: [one.count, one.first] for name, one in survey.tallies.items()},
        "roles": {name: [one.count, one.first] for name, one in survey.roles.items()},
        "labels": survey.labels,
        "words": list(survey.words.items()),
    }


def _survey(plain: Mapping[str, Any]) -> Survey:
    """The survey again. Raises KeyError, TypeError or ValueError for what `_plain` did not write."""
    broken, wrong, talks = plain["broken"], plain["wrong"], plain["talks"]
    good, bad = plain["labels"]
    return Survey(
        int(plain["rows"]),
        tuple(map(str, plain["columns"])),
        None if broken is None else Broken(int(broken[0]), int(broken[1]), str(broken[2]), bool(broken[3])),
        None if wrong is None else (int(wrong[0]), str(wrong[1])),
        None if talks is None else bool(talks),
        _tallies(plain["tallies"]),
        _tallies(plain["roles"]),
        (int(good), int(bad)),
        {int(words): int(count) for words, count in plain["words"]},
    )


def _tallies(plain: Mapping[str, Any]) -> dict[str, Tally]:
    return {str(name): Tally(int(count), int(first)) for name, (count, first) in plain.items()}
