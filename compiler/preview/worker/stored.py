"""Read chosen rows of a source as they are stored, without converting or tokenizing any rows."""

import json
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .session import Session

BATCH = 2000
"""The largest number of rows in each Arrow table that is read."""
SURVEYED = 64 * 2**20
"""If all rows of a source are checked, at most this many characters of the source are read. `xpc check` has the same
limit.
"""
LARGE = 4 * 2**20
"""A JSON file that contains a list is read row by row if it has more bytes than this."""
SPACE = re.compile(r"[ \t\r\n]*")
FIRST_OF_HUB = 1000
"""For a hub source, random rows and the longest rows are chosen only among the first rows of the source: this many."""


def stream(session: Session, source: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the stored rows from the first to the last, as Arrow tables of at most `BATCH` rows. Raises RunError."""
    import datasets

    sources, bundle = session.core("data_sources"), session.bundle
    datasets.disable_progress_bars()
    try:
        rows = sources.reader(bundle, source, session.chosen.others)(bundle, source, source["split"], True)
        # images and audio are not decoded; a stream of JSON does not know its columns, but has no images or audio
        if rows.features is not None and hasattr(rows, "decode"):
            rows = rows.decode(False)
        yield from rows.with_format("arrow").iter(BATCH)
    except session.errors:
        raise
    except Exception as error:  # the datasets library raises errors of many classes
        raise session.errors(sources.unreadable(bundle, source, None, error)) from error


def write(session: Session, source: Mapping[str, Any], most: int | None, path: str) -> int:
    """Write the first stored rows of a source as JSON lines into the file `path`: at most `most` rows (None means all
    rows), and at most `SURVEYED` characters. Returns the number of written rows. Raises RunError.
    """
    written = size = 0
    with open(path, "w", encoding="utf-8") as out:
        for table in stream(session, source):
            for row in table.to_pylist():
                if size >= SURVEYED or (most is not None and written >= most):
                    return written
                line = json.dumps({name: _without_nulls(value) for name, value in row.items()}, default=str)
                size += out.write(line + "\n")
                written += 1
    return written


def _without_nulls(value: Any) -> Any:
    """Remove keys whose value is null. Arrow adds such keys: if one message of a table has a key, all its messages have
    it. `content` and `value` stay, because they may also be null in a JSON file.
    """
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {
            key: _without_nulls(one) for key, one in value.items() if one is not None or key in ("content", "value")
        }
    return value


def pick(session: Session, source: Mapping[str, Any], numbers: Sequence[int]) -> dict[int, Any]:
    """Read the stored rows with these indices. Returns each row as a dataset of one row. An index without a row is
    skipped. Raises RunError.
    """
    import datasets

    wanted, found, at = sorted(set(numbers)), dict[int, Any](), 0
    if not wanted:
        return found
    if (path := _large_list(session, source)) is not None and (texts := _of_list(path, wanted)) is not None:
        own = os.path.join(session.scratch, "rows-of-a-list.jsonl")
        with open(own, "w", encoding="utf-8") as out:
            out.writelines(f"{text}\n" for text in texts.values())
        few = {**source, "path": own, "bundled": None, "sha256": None}
        picked = pick(session, few, range(len(texts))) if texts else {}
        return dict(zip(texts, picked.values(), strict=True))
    for table in stream(session, source):
        while wanted and wanted[0] < at + len(table):
            number = wanted.pop(0)
            found[number] = datasets.Dataset(table.slice(number - at, 1))
        at += len(table)
        if not wanted:
            break
    return found


def _large_list(session: Session, source: Mapping[str, Any]) -> str | None:
    """The path of a source that is a single large JSON file with a list of rows. None for any other source."""
    if source["id"] is not None or source.get("files") or not str(source["path"]).lower().endswith(".json"):
        return None
    _, paths = session.optional("features.rows.local_sources").files(session.bundle, source, source["split"])
    if len(paths) != 1 or os.path.getsize(paths[0]) <= LARGE:
        return None
    with open(paths[0], "rb") as handle:
        return paths[0] if handle.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[") else None


def _of_list(path: str, wanted: Sequence[int]) -> dict[int, str] | None:
    """Find the rows with the indices `wanted` in a JSON file that is a list. Each row is returned as JSON on one line.
    None if the file, up to the last of these rows, is not a correct list of objects.

    This function does not use the datasets library, which would read and write the complete list before it returns the
    first row.
    """
    for most in (LARGE, -1):
        with open(path, "rb") as handle:
            data = handle.read(most)
        text = data.decode("utf-8-sig", "ignore" if most > 0 else "strict")
        try:
            return _objects(text, {*wanted})
        except (ValueError, StopIteration, RecursionError):
            continue  # the list does not end in this part of the file, or it is not JSON
    return None


def _objects(text: str, wanted: set[int]) -> dict[int, str]:
    """The texts of the wanted objects of a list. Raises ValueError or StopIteration if the text is not such a list."""
    scan, space = json.JSONDecoder().scan_once, SPACE.match  # type: ignore[attr-defined]
    found, last, number = dict[int, str](), max(wanted), 0
    at = space(text, text.index("[") + 1).end()  # type: ignore[union-attr]
    while number <= last and text[at : at + 1] != "]":
        value, end = scan(text, at)
        if not isinstance(value, dict):
            raise ValueError(f"row {number} is not an object")
        if number in wanted:
            # a line break in JSON is white space, because texts have `\\n`
            found[number] = text[at:end].replace("\n", " ").replace("\r", " ")
        number += 1
        at = space(text, end).end()  # type: ignore[union-attr]
        if text[at : at + 1] == ",":
            at = space(text, at + 1).end()  # type: ignore[union-attr]
        elif number <= last and text[at : at + 1] != "]":
            raise ValueError(f"the list is not complete after row {number}")
    return found


def count(session: Session, source: Mapping[str, Any]) -> int:
    """The number of rows in a source. For a source on the hub, counting stops at `FIRST_OF_HUB` rows."""
    total = 0
    for table in stream(session, source):
        total += len(table)
        if source["id"] is not None and total >= FIRST_OF_HUB:
            return FIRST_OF_HUB
    return total


def random_numbers(session: Session, source: Mapping[str, Any], many: int, seed: int) -> list[int]:
    """The indices of `many` random rows, in ascending order."""
    total = count(session, source)
    return sorted(random.Random(seed).sample(range(total), min(many, total)))
