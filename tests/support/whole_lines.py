"""Files that another process is writing, read up to the last line that is whole."""

from __future__ import annotations

import json
import os
from typing import Any


def whole_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines that end, without their ends; none of a file that is not there yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def events(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What a run has told of by now: the events of metrics.jsonl in its output folder."""
    return [json.loads(line) for line in whole_lines(os.path.join(out, "metrics.jsonl"))]
