"""Read and write metrics.jsonl: one JSON object per log event. The file can be read even after a crash."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

METRICS = "metrics.jsonl"


def events(path: str) -> Iterator[dict[str, Any]]:
    """The objects of metrics.jsonl. Truncated or damaged lines are skipped. Raises OSError."""
    with open(path, "rb") as handle:
        for line in handle:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("step"), int):
                yield event


def trim(path: str, step: int) -> None:
    """Drop an incomplete last line and events after ``step``, which the resumed run repeats. Creates a missing file."""
    known = events(path) if os.path.exists(path) else ()
    replace(path, [written(event) for event in known if event["step"] <= step])


def replace(path: str, lines: Iterable[str]) -> None:
    """Write or rewrite a file. If the process is killed, the file has the old or the new contents, never a part."""
    with open(path + ".part", "w", encoding="utf-8") as handle:
        handle.writelines(lines)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(path + ".part", path)


def written(event: Mapping[str, object]) -> str:
    """An event as one line of JSON. Numbers that JSON lacks become the strings "nan", "inf" and "-inf"."""
    return json.dumps({key: number(value) for key, value in event.items()}) + "\n"


def number(value: object) -> Any:
    """A number for JSON: "nan", "inf" and "-inf" become strings."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value
