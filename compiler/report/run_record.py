"""Read the output of a run: metrics.jsonl, measured.jsonl, summary.json, xpc_run.json and the names of its checkpoints.

The folder may come from a stranger, so links are not followed, pipes are not read, and each read has a limit. The run
may still be active, or may have died, so any file may be incomplete. If a file is malformed, it counts as missing, and
a note says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from math import isfinite

from xpc.compiler.files.folder_contents import LARGEST_METRICS, read, without_following
from xpc.compiler.files.inputs import UsageError
from xpc.grammar.record import field, mutable
from xpc.runtime.picture import is_step, restarts_of
from xpc.runtime.result import results, totals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUMMARY, METRICS, MEASURED, MARKER = "summary.json", "metrics.jsonl", "measured.jsonl", "xpc_run.json"
FILES = {SUMMARY, METRICS, MARKER, MEASURED}
"""A folder is the output of a run if it contains at least one of these files."""
LARGEST_TABLE = 16 * 2**20
"""Any file of the run except metrics.jsonl is read only up to this many bytes."""
MOST_EVENTS = 1_000_000
MOST_ENTRIES = 100_000
"""Maximum number of file names that are read from the run's folder."""
MOST_VALUES = 1000
"""Maximum number of phases, packages or counts that are read from one JSON object of the run."""
MOST_RESULTS = 24
FINISHED, GOING, STOPPED, ENDED = "finished", "going", "stopped on request", "ended without a result"


@mutable
class RunRecord:
    """The contents of a run's output folder. `settings` and `digest` come from the bundle that the run used. `starts`
    has a dictionary for each start of the run. `measured` has the sums over all starts, and `measured_at` is the step
    of the last measurement. `notes` are sentences about files that could not be read.
    """

    folder: str
    name: str
    status: str = ENDED
    digest: str = ""
    settings: Mapping[str, Any] = field(factory=dict)
    summary: Mapping[str, Any] = field(factory=dict)
    events: list[dict[str, Any]] = field(factory=list)
    starts: list[dict[str, Any]] = field(factory=list)
    restarts: list[float] = field(factory=list)
    measured: Mapping[str, Any] = field(factory=dict)
    measured_at: int = 0
    checkpoints: list[int] = field(factory=list)
    notes: list[str] = field(factory=list)

    @property
    def step(self) -> int:
        """The last step that the run logged or measured."""
        steps = [self.measured_at, *(event["step"] for event in (*self.events[-1:], *self.starts[-1:]))]
        stated = self.summary.get("steps")
        return int(stated) if stated is not None and is_step(stated) else max(steps)

    @property
    def seconds(self) -> float | None:
        """The total seconds of training in all starts of the run. Time that was not logged is not counted. None if no
        time is known.
        """
        logged = [number(event.get("seconds")) for event in self.events[-1:]]
        return number(self.summary.get("seconds")) or next(iter(logged), None)

    @property
    def tokens(self) -> float | None:
        """The number of tokens that the run was trained on. Tokens that were not logged are not counted. None if no
        number is known.
        """
        found = (number(event.get("tokens")) for event in reversed(self.events))
        return number(self.summary.get("tokens")) or next((one for one in found if one is not None), None)

    @property
    def data(self) -> Mapping[str, Any]:
        """Counts of the rows, such as the number of truncated rows."""
        return table(self.summary.get("data")) or table((self.starts or [{}])[-1].get("data"))

    @property
    def versions(self) -> Mapping[str, Any]:
        """The versions of packages in the run's last start."""
        return table(self.summary.get("versions")) or table((self.starts or [{}])[-1].get("versions"))

    @property
    def world(self) -> int | None:
        """The number of processes in the last start."""
        found = self.summary.get("world", (self.starts or [{}])[-1].get("world"))
        return found if is_step(found) and found else None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The trainer arguments of the run. A finished run has recorded its arguments. For an unfinished run, these are
        the arguments in its bundle.
        """
        stated = {
            name.removeprefix("arguments."): one for name, one in self.settings.items() if name[:10] == "arguments."
        }
        return table(self.summary.get("arguments")) or stated

    def results(self, rewarded: bool) -> dict[str, dict[str, float]]:
        """The first, last and best value of each important metric."""
        return dict(list(results(self.events, rewarded).items())[:MOST_RESULTS])


def number(value: object) -> float | None:
    """The value if it is a finite number, otherwise None. The check is needed because a run's files may come from a
    stranger.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if isfinite(found) else None


def table(value: object) -> Mapping[str, Any]:
    """The value if it is a dictionary with at most `MOST_VALUES` entries, otherwise an empty one. The check is needed
    because a run's files may come from a stranger.
    """
    return value if isinstance(value, dict) and len(value) <= MOST_VALUES else {}


def read_run(folder: str) -> RunRecord | None:
    """Read the output of the run in a folder. None if the folder contains no run. Raises UsageError."""
    try:
        names = _names(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from error
    if not names & FILES:
        return None
    run = RunRecord(folder, os.path.basename(os.path.abspath(folder)))
    run.summary = _object(run, folder, SUMMARY, names)
    for line in _lines(run, folder, MARKER, names, LARGEST_TABLE)[:1]:
        run.settings = line["settings"] if isinstance(line.get("settings"), dict) else {}
        run.digest = str(line.get("bundle"))
    run.digest = str(run.summary.get("bundle", run.digest))
    found = _lines(run, folder, METRICS, names, LARGEST_METRICS)
    run.events = sorted((one for one in found if is_step(one.get("step"))), key=lambda one: one["step"])
    measured = [one for line in _lines(run, folder, MEASURED, names, LARGEST_TABLE) if (one := _measured(line))]
    run.starts = [one for one in measured if "started" in one]
    run.measured_at = measured[-1]["step"] if measured else 0
    run.restarts, run.measured = restarts_of(measured), totals(measured) if measured else {}
    run.checkpoints = sorted(int(name[11:]) for name in names if re.fullmatch(r"checkpoint-\d{1,15}", name))
    if run.summary:
        run.status = FINISHED
    elif MARKER in names and _locked(os.path.join(folder, MARKER)):
        run.status = GOING
    elif measured and measured[-1].get("stop") and measured[-1]["step"] in run.checkpoints:
        run.status = STOPPED
    return run


def runs_inside(folder: str) -> list[str]:
    """The output folders of runs directly inside a folder, for example inside a sweep's output folder."""
    try:
        names = _names(folder)
        if names & FILES:
            return []
        locations = [os.path.join(folder, name) for name in sorted(names)[:MOST_VALUES]]
        return [one for one in locations if os.path.isdir(one) and not os.path.islink(one) and _names(one) & FILES]
    except OSError:
        return []


def _names(folder: str) -> set[str]:
    out: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            out.add(entry.name)
            if len(out) >= MOST_ENTRIES:
                break
    return out


def _bytes(run: RunRecord, folder: str, name: str, names: set[str], limit: int) -> bytes:
    if name not in names:
        return b""
    try:
        return read(os.path.join(folder, name), limit)
    except OSError as error:
        run.notes.append(f"{name} is not read: {error.strerror or error}")
        return b""


def _object(run: RunRecord, folder: str, name: str, names: set[str]) -> Mapping[str, Any]:
    data = _bytes(run, folder, name, names, LARGEST_TABLE)
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        run.notes.append(f"{name} is not JSON, and is not used")
        return {}
    return found


def _lines(run: RunRecord, folder: str, name: str, names: set[str], limit: int) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines. An incomplete last line is ignored, because it is normal for a run that is
    active or was killed.
    """
    lines = _bytes(run, folder, name, names, limit).split(b"\n")
    found, bad = [], 0
    for line in lines[:MOST_EVENTS]:
        try:
            one = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            bad += line is not lines[-1]
            continue
        if isinstance(one, dict):
            found.append(one)
    if bad:
        run.notes.append(f"{name} has {bad:,} damaged line{'s' * (bad != 1)}, skipped here")
    if len(lines) > MOST_EVENTS:
        run.notes.append(f"{name} has more than {MOST_EVENTS:,} lines; the first ones are shown")
    return found


def _measured(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a line of measured.jsonl if its values have the types that a run writes; otherwise None."""
    if not is_step(line.get("step")):
        return None
    if "started" in line:
        return dict(line)
    counts = ("waits", "saves", "saved_bytes", "real_tokens", "padded_tokens")
    seconds = {name: spent for name, one in table(line.get("seconds")).items() if (spent := number(one)) is not None}
    memory = {
        phase: {kind: int(size) for kind, one in table(kinds).items() if (size := number(one)) is not None}
        for phase, kinds in table(line.get("memory")).items()
    }
    peaks = {
        kind: [int(number(one) or 0) for one in sizes]
        for kind, sizes in table(line.get("peaks")).items()
        if isinstance(sizes, list)
    }
    stop = isinstance(line.get("stop"), str)
    return {"step": line["step"], "stop": stop, "seconds": seconds, "memory": memory, "peaks": peaks,
            **{name: number(line.get(name)) or 0 for name in counts}}  # fmt: skip


def _locked(path: str) -> bool:
    """Whether a process is training in this output folder. Such a process locks the run's marker file `path`. Always
    false on a file system without locks.
    """
    import fcntl

    try:
        handle = open(path, "rb", opener=without_following)  # noqa: SIM115
    except OSError:
        return False
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False
