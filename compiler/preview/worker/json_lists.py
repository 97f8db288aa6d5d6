"""Read single rows of large JSON files that are lists of objects. A file is read piece by piece, and is never complete
in memory. The datasets library would read and write the complete list before it returns the first row.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .session import Session

PIECE = 2**20
"""The number of characters that are read at once. If a row is longer, more are read."""
LARGE = 4 * 2**20
"""A JSON file that contains a list is read row by row if it has more bytes than this."""
SPACE = re.compile(r"[ \t\r\n]*")


def large_lists(session: Session, source: Mapping[str, Any]) -> list[str]:
    """The files of a source whose rows are lists in JSON files, if the files together are large. Empty for any other
    source.
    """
    if source["id"] is not None:
        return []
    kind, paths = session.optional("features.rows.local_sources").files(session.bundle, source, source["split"])
    if kind != "json" or sum(map(os.path.getsize, paths)) <= LARGE:
        return []
    return paths if all(map(_begins_list, paths)) else []


def _begins_list(path: str) -> bool:
    with open(path, "rb") as handle:
        return handle.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def rows(paths: Sequence[str]) -> Iterator[str]:
    """Yield the JSON text of every row. Raises ValueError or RecursionError if a file is not a list of objects."""
    for path in paths:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            yield from _of_file(handle)


def _of_file(handle: Any) -> Iterator[str]:
    scan, space = json.JSONDecoder().scan_once, SPACE.match  # type: ignore[attr-defined]
    text, number = handle.read(PIECE), 0
    at = text.index("[") + 1
    while True:
        try:
            at = space(text, at).end()  # type: ignore[union-attr]
            if text[at] == "]":
                return
            value, end = scan(text, at)
            after = space(text, end).end()  # type: ignore[union-attr]
            complete = isinstance(value, dict) and text[after] in ",]"
        except (ValueError, StopIteration, IndexError):
            # the row, or what follows it, is perhaps in the next piece
            more = handle.read(max(PIECE, len(text) - at))
            if not more:
                raise ValueError(f"the list is not complete after row {number}") from None
            text, at = text[at:] + more, 0
            continue
        if not complete:
            raise ValueError(f"row {number} is not an object, or no comma follows it")
        yield text[at:end]
        number += 1
        at = after + (text[after] == ",")


def chosen(paths: Sequence[str], wanted: Sequence[int]) -> dict[int, str] | None:
    """The rows with the indices `wanted`, each as JSON on one line. None if a file is not a correct list of objects up
    to the last of these rows.
    """
    found, last = dict[int, str](), max(wanted)
    try:
        for number, text in enumerate(rows(paths)):
            if number in wanted:
                # a line break in JSON is white space, because strings contain `\\n` in its place
                found[number] = text.replace("\n", " ").replace("\r", " ")
            if number == last:
                break
    except (ValueError, RecursionError):
        return None
    return found


def count(paths: Sequence[str]) -> int | None:
    """The number of rows. None if the files are not correct lists of objects."""
    try:
        return sum(1 for _ in rows(paths))
    except (ValueError, RecursionError):
        return None
