"""Choose stored rows of a source without converting or tokenizing the others."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .session import Session

BATCH = 2000
"""The most rows of one table of a stream."""
FIRST_OF_HUB = 1000
"""The number of first rows of a hub source among which random and longest rows are chosen."""


def stream(session: Session, source: Mapping[str, Any]) -> Iterator[Any]:
    """The stored rows as Arrow tables of at most `BATCH` rows, in order. Raises RunError."""
    import datasets

    sources, bundle = session.core("data_sources"), session.bundle
    datasets.disable_progress_bars()
    try:
        rows = sources.reader(bundle, source, session.chosen.others)(bundle, source, source["split"], True)
        for name in ("decode",):  # images and audio are not decoded
            if hasattr(rows, name):
                rows = getattr(rows, name)(False)
        yield from rows.with_format("arrow").iter(BATCH)
    except session.errors:
        raise
    except Exception as error:  # the datasets library wraps errors of its readers in many classes
        raise session.errors(sources.unreadable(bundle, source, None, error)) from error


def pick(session: Session, source: Mapping[str, Any], numbers: Sequence[int]) -> dict[int, Any]:
    """The stored rows with these numbers, each as a dataset of one row; missing numbers are left out. Raises
    RunError.
    """
    import datasets

    wanted, found, at = sorted(set(numbers)), dict[int, Any](), 0
    if not wanted:
        return found
    for table in stream(session, source):
        while wanted and wanted[0] < at + len(table):
            number = wanted.pop(0)
            found[number] = datasets.Dataset(table.slice(number - at, 1))
        at += len(table)
        if not wanted:
            break
    return found


def count(session: Session, source: Mapping[str, Any]) -> int:
    """The number of rows of a source; for a source on the hub at most `FIRST_OF_HUB` are counted."""
    total = 0
    for table in stream(session, source):
        total += len(table)
        if source["id"] is not None and total >= FIRST_OF_HUB:
            return FIRST_OF_HUB
    return total


def random_numbers(session: Session, source: Mapping[str, Any], many: int, seed: int) -> list[int]:
    """Numbers of random rows, in ascending order."""
    total = count(session, source)
    return sorted(random.Random(seed).sample(range(total), min(many, total)))
