"""Store the survey of a data file. A file may have up to 64 MiB, so later commands read its survey, not the file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from xpc.compiler.spec.survey import Broken, Survey, Tally
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpc.compiler.files.file_memory import FileMemory, Stamp

READERS = (
    "data/damage.py",
    "data/export_marks.py",
    "data/file_counts.py",
    "data/inspectors.py",
    "data/reader.py",
    "data/survey.py",
    "data/row_shapes.py",
    "data/shapes.py",
    "data/structure.py",
    "data/turn_order.py",
    "data/survey_cache.py",
    "spec/survey.py",
)
"""The source files with the code that computes a survey. If one of these files changes, surveys that were stored before
the change are no longer used.
"""


@record
class CachedSurvey:
    """The stored facts about a file: the SHA-256 of its contents in hex, and the survey of its rows."""

    digest: str
    survey: Survey


def recall(memory: FileMemory, path: str, shape: str, names: tuple[str, ...]) -> CachedSurvey | None:
    """The stored survey of an unchanged file, for rows with this format and these columns. None if no such survey is
    stored.
    """
    found = memory.recall(path, _version(), _key(shape, names))
    try:
        return None if found is None else CachedSurvey(found[0], _survey(found[1]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def keep(
    memory: FileMemory, path: str, before: Stamp | None, shape: str, names: tuple[str, ...], known: CachedSurvey
) -> None:
    """Store the survey of a file. `before` is the stamp that the file had before it was read. Never raises."""
    memory.keep(path, before, _version(), _key(shape, names), known.digest, _plain(known.survey))


def _version() -> str:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = [os.stat(os.path.join(package, name)) for name in READERS]
    return "\0".join(f"{one.st_mtime_ns}:{one.st_size}" for one in found)


def _key(shape: str, names: tuple[str, ...]) -> str:
    return json.dumps([shape, *names])


def _plain(survey: Survey) -> dict[str, object]:
    """Convert a survey to JSON."""
    broken = survey.broken
    return {
        **vars(survey),
        "broken": None if broken is None else [broken.row, broken.line, broken.why, broken.encoding],
        "tallies": {name: [one.count, one.first] for name, one in survey.tallies.items()},
        "roles": {name: [one.count, one.first] for name, one in survey.roles.items()},
        "words": list(survey.words.items()),
        "characters": list(survey.characters.items()),
    }


def _survey(plain: Any) -> Survey:
    """Convert JSON to a survey. Raises KeyError, TypeError, ValueError or AttributeError for other JSON."""
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
        None if plain["largest"] is None else (int(plain["largest"][0]), int(plain["largest"][1])),
        tuple(map(int, plain["sketch"])),
        {int(long): int(count) for long, count in plain["characters"]},
    )


def _tallies(plain: Mapping[str, Any]) -> dict[str, Tally]:
    return {str(name): Tally(int(count), int(first)) for name, (count, first) in plain.items()}
