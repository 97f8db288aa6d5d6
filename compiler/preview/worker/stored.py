"""Read chosen rows of a source as they are stored, without converting or tokenizing any rows."""

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import json_lists
from .session import Session

BATCH = 2000
"""The largest number of rows in each Arrow table that is read."""
SURVEYED = 64 * 2**20
"""If all rows of a source are checked, at most this many characters of the source are read. `xpc check` has the same
limit.
"""
FIRST_OF_HUB = 1000
"""Random rows and the longest rows of a hub source are chosen only among this many rows at its beginning."""


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
    if (lists := json_lists.large_lists(session, source)) and (texts := json_lists.chosen(lists, wanted)) is not None:
        own = os.path.join(session.scratch, "rows-of-a-list.jsonl")
        with open(own, "w", encoding="utf-8") as out:
            out.writelines(f"{text}\n" for text in texts.values())
        few = {**source, "path": own, "bundled": None, "files": None, "sha256": None}
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


def count(session: Session, source: Mapping[str, Any]) -> int:
    """The number of rows in a source. For a source on the hub, counting stops at `FIRST_OF_HUB` rows."""
    if (lists := json_lists.large_lists(session, source)) and (listed := json_lists.count(lists)) is not None:
        return listed
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
