"""`make gpu`: measure what cannot be tested without a GPU. The program can be stopped and started again. It writes a
line of JSON for each measurement.

    python tests/gpu/campaign.py --out gpu-readings            # continues where it was stopped; at most 8 minutes
    python tests/gpu/campaign.py --out /tmp/r --rehearse       # the same measurements on a CPU, with small shapes

The program uses whatever package versions are installed, and records the versions with each measurement. A measurement
that fails is recorded with its error.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import choices
import machine
import memory
import runs
import throughput
from attrs import frozen

Reading = dict[str, Any]
UNFINISHED = 75
"""The exit status if some measurements remain to be done. The same command then continues with them."""
CLOSE = 1e-3
"""If two runs compute the same, their losses may have at most this relative difference."""


@frozen
class Piece:
    """One measurement: its name, its kind, and the function that makes it."""

    name: str
    kind: str
    read: Callable[[], Reading]


def pieces(location: machine.Machine) -> Iterator[Piece]:
    """Every measurement of the campaign, the most informative ones first: the time may not be enough for all of
    them.
    """
    yield Piece("preflight", "preflight", lambda: runs.preflight(location))
    for case in runs.cases(location):
        yield Piece(f"run {case.name}", "run", lambda case=case: runs.read(case, location))  # type: ignore[misc]
    yield Piece("run killed", "run", lambda: runs.killed(location))
    for shape in memory.shapes(location.rehearsal):
        yield Piece(f"memory {shape.name}", "memory", lambda shape=shape: memory.read(shape, location))  # type: ignore[misc]
    for pair in throughput.comparisons(location):
        yield Piece(f"throughput {pair.name}", "throughput", lambda pair=pair: throughput.read(pair, location))  # type: ignore[misc]
    for one in choices.choices(location):
        yield Piece(f"choice {one.name}", "choice", lambda one=one: choices.read(one, location))  # type: ignore[misc]


class Readings:
    """A file with one measurement per line. Lines that were measured with other package versions or on another GPU are
    ignored.
    """

    def __init__(self, folder: str, location: machine.Machine) -> None:
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "readings.jsonl")
        self.location = location
        self.known: dict[str, Reading] = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as handle:
                found = [json.loads(line) for line in handle if line.endswith("\n")]
            self.known = {one["piece"]: one for one in found if one["machine"] == location.facts}

    def take(self, piece: Piece) -> Reading:
        """Make a measurement and append a line about it to the file. If the measurement fails, the line has the error
        instead of numbers.
        """
        began = time.monotonic()
        try:
            found = {"ok": True, **piece.read()}
        except (subprocess.SubprocessError, machine.Failed, OSError, ValueError, KeyError) as error:
            found = {"ok": False, "error": f"{type(error).__name__}: {error}"[-2000:]}
        found = {
            "piece": piece.name, "kind": piece.kind, **found, "seconds": round(time.monotonic() - began, 1),
            "machine": self.location.facts,
        }  # fmt: skip
        with open(self.path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(found) + "\n")
        self.known[piece.name] = found
        return found


def unequal(found: dict[str, Reading]) -> Iterator[str]:
    """All runs of a group should have equal losses. Compare the losses of each run with the losses of the group's first
    run. Yield a sentence for each run where the difference is larger than CLOSE.
    """
    first: dict[str, Reading] = {}
    for one in found.values():
        if one["kind"] != "run" or not one["ok"] or "group" not in one:
            continue
        group = first.setdefault(one["group"], one)
        worst = max((abs(a - b) / abs(b) for a, b in zip(one["losses"], group["losses"], strict=False)), default=0.0)
        if worst > CLOSE or len(one["losses"]) != len(group["losses"]):
            yield f"{one['piece']}: losses differ from those of {group['piece']} by {worst:.1e}"


def planned(found: dict[str, Reading]) -> Iterator[str]:
    """Lines about the relative error of the planned memory (predicted / measured - 1): its mean, its median, and the
    worst error of all measurements of memory.
    """
    off = sorted(abs(one["off"]) for one in found.values() if "off" in one)
    if off:
        mean, median = statistics.mean(off), statistics.median(off)
        yield f"the plan is off by {mean:.1%} on average ({median:.1%} median, {off[-1]:.1%} worst of {len(off)})"


def main() -> int:
    """Make measurements until the time is over. The exit status is 0 if every measurement succeeded, 1 if one failed,
    and 75 if some have not been made yet.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder for readings.jsonl and the runs")
    parser.add_argument(
        "--minutes", type=float, default=8, help="begin no new piece after this many minutes (default: 8)"
    )
    parser.add_argument("--rehearse", action="store_true", help="run on a CPU, with small shapes")
    parser.add_argument("--only", default="", metavar="WORD", help="run only pieces whose name contains this word")
    options = parser.parse_args()
    location = machine.find_machine(os.path.abspath(options.out), options.rehearse)
    began = time.monotonic()  # each call makes at least one measurement
    readings = Readings(options.out, location)
    wanted = [one for one in pieces(location) if options.only in one.name]
    for one in wanted:
        if one.name in readings.known:
            continue
        if time.monotonic() - began > 60 * options.minutes:
            left = sum(piece.name not in readings.known for piece in wanted)
            print(f"{left} pieces are left; the same command continues with them", flush=True)
            return UNFINISHED
        found = readings.take(one)
        print(
            f"{one.name}: {'ok' if found['ok'] else found['error'].splitlines()[-1]} ({found['seconds']} s)", flush=True
        )
    wrong = [f"{one['piece']}: {one['error']}" for one in readings.known.values() if not one["ok"]]
    wrong += unequal(readings.known)
    print(
        "\n".join(
            [
                *planned(readings.known),
                *choices.compared(readings.known),
                *wrong,
                f"{len(readings.known)} readings in {readings.path}, {len(wrong)} of them wrong",
            ]
        )
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
