"""Read the complete lines of a file to which another process is still writing."""

from __future__ import annotations

import json
import os
from typing import Any


def whole_lines(path: str | os.PathLike[str]) -> list[str]:
    """Those lines of a file that end with a line break, without the line breaks: an incomplete last line is left out.
    Empty if there is no file.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def events(out: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The events that a run has written so far to metrics.jsonl in its output folder ``out``."""
    return [json.loads(line) for line in whole_lines(os.path.join(out, "metrics.jsonl"))]
