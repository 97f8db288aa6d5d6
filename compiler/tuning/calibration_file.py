"""Read and write the calibration file, which contains measurements of real runs. Only `xpc tune` writes it, and only
`xpc plan --calibration FILE` reads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from xpc.compiler import __version__
from xpc.compiler.files.atomic import write_text
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.workspace import read_file
from xpc.compiler.plan.calibration import Reading

VERSION = 1
"""The version of the calibration file's format. It must be increased if older versions of xpc cannot read a file of the
new format.
"""
LIMIT = 64 * 2**20
"""Maximum size in bytes of a calibration file."""


def read(path: str) -> tuple[Reading, ...]:
    """Read the measurements in a calibration file. Raises UsageError."""
    try:
        found = json.loads(read_file(path, LIMIT))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a calibration file: `xpc tune` writes one") from error
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("readings"), list):
        raise UsageError(f"{path} is not a calibration file of version {VERSION}: `xpc tune` writes one")
    try:
        return tuple(_reading(one) for one in found["readings"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} has a malformed measurement: {type(error).__name__}: {error}") from error


def _reading(one: Mapping[str, Any]) -> Reading:
    low, middle, high = (float(one["seconds_per_step"][name]) for name in ("low", "value", "high"))
    if not 0 < low <= middle <= high < float("inf"):
        raise ValueError(f"seconds_per_step {one['seconds_per_step']}")
    numbers = {name: _positive(one[name]) for name in ("tokens_per_second", "peak_bytes")}
    planned = {name: _positive(one["planned"][name]) for name in ("tokens_per_second", "peak_bytes")}
    peak = numbers["peak_bytes"]
    return Reading(
        {str(name): str(value) for name, value in one["run"].items()}, (middle, low, high),
        numbers["tokens_per_second"], None if peak is None else int(peak),
        planned["tokens_per_second"], planned["peak_bytes"], str(one["source"]),
    )  # fmt: skip


def _positive(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e18:
        raise ValueError(f"{value!r} is not a measurement")
    return float(value)


def add(path: str, new: Sequence[Reading]) -> None:
    """Add measurements to a calibration file. If the file does not exist, create it. Raises UsageError."""
    before = read(path) if os.path.exists(path) else ()
    kept = [one for one in before if not any(one.source == other.source and one.run == other.run for other in new)]
    table = {"version": VERSION, "xpc": __version__, "readings": [_table(one) for one in (*kept, *new)]}
    write_text(path, json.dumps(table, indent=1) + "\n")


def _table(one: Reading) -> dict[str, object]:
    return {
        "source": one.source,
        "run": dict(one.run),
        "seconds_per_step": dict(zip(("value", "low", "high"), one.seconds)),
        "tokens_per_second": one.tokens,
        "peak_bytes": one.peak,
        "planned": {"tokens_per_second": one.planned_tokens, "peak_bytes": one.planned_peak},
    }
