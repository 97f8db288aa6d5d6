"""metrics.jsonl on disk: one line of JSON a log event, whatever happened to the run that wrote it."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any


def events(path: str) -> Iterator[dict[str, Any]]:
    """The objects of metrics.jsonl. A line that was cut or damaged is left out. Raises OSError."""
    with open(path, "rb") as handle:
        for line in handle:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("step"), int):
                yield event


def trim(path: str, step: int) -> None:
    """Drops a cut last line, and what metrics.jsonl says of steps after ``step``, which are taken again."""
    if os.path.exists(path):
        keep(path, [event for event in events(path) if event["step"] <= step])


def keep(path: str, kept: Iterable[Mapping[str, Any]]) -> None:
    """Writes metrics.jsonl anew, with these events alone."""
    with open(path + ".part", "w", encoding="utf-8") as handle:
        handle.writelines(map(written, kept))
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(path + ".part", path)


def written(event: Mapping[str, Any]) -> str:
    """One line of JSON; a number that JSON has no word for stands as the text "nan", "inf" or "-inf"."""
    return json.dumps({key: number(value) for key, value in event.items()}) + "\n"


def number(value: Any) -> Any:
    """A number as JSON has it: "nan", "inf" and "-inf" are texts."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value
