"""Decide whether a run can resume from the checkpoints of an earlier run, as the trainer does when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xpc.runtime.core import same_run

HEAD = "trainer_args.json "
FOLDER = f"{HEAD}arguments.output_dir"
DIVISION = f"{HEAD}run.division."
FILES = ("accelerate.yaml", "deepspeed.json")


def resumes(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """A sentence on whether a run with the tables `after` can resume from checkpoints of a run with the tables
    `before`; empty for equal tables.
    """
    if before == after:
        return ""
    was, now = _settings(before), _settings(after)
    division: Any = {name: after.get(DIVISION + name) for name in ("step", "processes", "micro")}
    why = same_run.differences(was, now, division)
    if why:
        return f"cannot be resumed: {why}"
    folders = before.get(FOLDER), after.get(FOLDER)
    if folders[0] != folders[1]:
        return f"can be resumed if they are moved from {folders[0]} to {folders[1]}"
    return "can be resumed"


def _settings(tables: Mapping[str, object]) -> dict[str, object]:
    """The settings in the tables, under the names that the trainer uses (runtime/core/same_run.py, `settings`)."""
    out: dict[str, object] = {}
    for name, value in tables.items():
        file, _, key = name.partition(" ")
        if value == {}:
            continue
        if file in FILES:
            out[f"{file}: {key}"] = value
        elif name.startswith(HEAD):
            out[key] = value
    return out
