"""Find the image files whose paths the rows of a local source contain."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator

from xpc.compiler.data.reader import read
from xpc.compiler.data.rows import columns
from xpc.compiler.data.shapes import IMAGES, SHAPES
from xpc.compiler.files.workspace import READ_ROWS, Workspace
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Broken

EMBEDDED = "data:image/"
"""The beginning of a data URL. Such a value contains the image itself, not a path."""
LONGEST = 64 * 2**20
"""Of one line in a large data file, at most this many bytes are read."""


def image_folder(source: DataSource) -> str:
    """The folder to which the paths of images are relative. It is the folder of the data file, or the data folder
    itself.
    """
    path = source.path or ""
    return path.rstrip("/") if source.parts else os.path.dirname(path) or "."


def image_paths(source: DataSource, workspace: Workspace) -> list[str] | None:
    """The paths of all images, in the order of the rows and without repetitions. None if the compiler does not read the
    rows (Parquet, large JSON or CSV).

    URLs are left out, and so are data URLs (images embedded in the rows).
    """
    found: dict[str, None] = {}
    for part in source.parts or (source,):
        rows = _rows(part, workspace)
        if rows is None:
            return None
        usual, written = SHAPES[source.shape or IMAGES], columns(part)
        column = (*written, *usual[len(written) :])[usual.index(IMAGES)]
        for row in rows:
            if not isinstance(row, dict):
                break  # another finding reports the row that cannot be read
            found |= dict.fromkeys(_paths(row.get(column)))
    return list(found)


def _rows(part: DataSource, workspace: Workspace) -> Iterable[object] | None:
    path = part.path or ""
    if part.content is not None and path.lower().endswith(READ_ROWS):
        found = read(part.content, path, part.documents or "line")
        return (None if isinstance(row, Broken) else row for row in found)
    if path.lower().endswith(".jsonl") and workspace.kind(path) == "file":
        return _lines(workspace.locate(path)[1])
    return None


def _lines(path: str) -> Iterator[object]:
    """Yield the rows of a file that is too large to be copied, up to the first row that cannot be read."""
    try:
        with open(path, "rb") as handle:
            while line := handle.readline(LONGEST):
                if line.strip():
                    yield json.loads(line)
    except (OSError, ValueError, RecursionError):
        return


def _paths(stored: object) -> Iterator[str]:
    for one in stored if isinstance(stored, list) else [stored]:
        path = (one.get("path") if one.get("bytes") is None else None) if isinstance(one, dict) else one
        if isinstance(path, str) and path and not path.startswith(EMBEDDED) and "://" not in path and "\0" not in path:
            yield path
