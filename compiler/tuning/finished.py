"""Read the measurements of a finished run from the files metrics.jsonl and summary.json in its output folder."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from xpc.compiler.files.folder_contents import LARGEST_METRICS, read
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.language.extras import is_number
from xpc.compiler.plan.calibration import Reading, identity
from xpc.compiler.plan.experiment import plan
from xpc.compiler.report.run_record import METRICS
from xpc.compiler.review.finished_run import SUMMARY, decisive_digest, read_json
from xpc.compiler.spec import Spec

WARM = 5
"""This many steps at the start of a run are not counted. They are slow, because caches fill, kernels are chosen, and
the allocator grows.
"""


def reading(spec: Spec, files: Mapping[str, bytes], out: str, source: str) -> Reading | None:
    """The measurements of a finished run. None if the run has not finished.

    `spec` is the spec of the run, `files` are the files of its bundle, and `out` is its output folder. `source` is a
    phrase that says where the measurements come from. Raises UsageError if the folder belongs to another run.
    """
    if not os.path.exists(os.path.join(out, SUMMARY)):
        return None
    summary = read_json(os.path.join(out, SUMMARY))
    if summary.get("bundle") != decisive_digest(files.get):
        raise UsageError(f"the run in {out} has another spec, or another version of this spec")
    logged = events(out)
    counted = [one for one in logged if one["step"] >= WARM]
    if len(counted) < 2:
        counted = [{"step": 0, "seconds": 0.0, "tokens": 0.0}, *logged[-1:]]
    each = [
        (after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
        for before, after in pairwise(counted)
        if after["step"] > before["step"] and after["seconds"] > before["seconds"]
    ]
    if not each:
        raise UsageError(f"{os.path.join(out, METRICS)} has no step times")
    first, last = counted[0], counted[-1]
    tokens = None
    if last.get("tokens") and "tokens" in first:
        tokens = (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"]) / spec.hardware.world
    peak = summary.get("peak_allocated_bytes")
    planned = plan(spec)
    tenths = statistics.quantiles(each, n=10, method="inclusive") if len(each) > 1 else each
    return Reading(
        identity(spec), (statistics.median(each), tenths[0], tenths[-1]), tokens or None,
        peak if isinstance(peak, int) else None, None if planned.speed is None else planned.speed.tokens,
        None if planned.memory is None else planned.memory.peak, source,
    )  # fmt: skip


def events(out: str) -> list[dict[str, Any]]:
    """The events with a loss and a time that a run logged, from the first step to the last. Raises UsageError."""
    found = []
    try:
        for line in filter(None, read(os.path.join(out, METRICS), LARGEST_METRICS).decode().split("\n")):
            event = json.loads(line)
            if is_number(event.get("loss")) and is_number(event.get("seconds")) and isinstance(event["step"], int):
                found.append(event)
    except (OSError, ValueError, RecursionError, AttributeError, KeyError) as error:
        raise UsageError(f"{os.path.join(out, METRICS)} cannot be read: {type(error).__name__}: {error}") from error
    return found
