"""Decide whether a run can resume from the checkpoints of an earlier run. The trainer decides this in the same way when
it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xpc.runtime.core import same_run

HEAD = "trainer_args.json "
FOLDER = f"{HEAD}arguments.output_dir"
RESUME = f"{HEAD}run.resume"
STOPPED = (
    (
        f"{HEAD}arguments.save_strategy", "no",
        "; a run with `every = never` writes a checkpoint only when it is stopped",
    ),
    (
        f"{HEAD}run.full_state", False,
        ", but only from the checkpoint that a run writes when it is stopped: with `full_state = false`, other "
        "checkpoints have only weights",
    ),
)  # fmt: skip
"""If the previous run has one of these values, it may have written no checkpoint to resume from. Each row has the key,
the value, and a text that is added to the sentence about resuming.
"""
DIVISION = f"{HEAD}run.division."
FILES = ("accelerate.yaml", "deepspeed.json")


def resumes(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """A sentence that says whether a run can resume from the checkpoints of another run. Empty if the configurations of
    the two runs are equal.

    `before` has the keys and values of the earlier run's JSON and YAML files, and `after` the keys and values of the
    new run's files.
    """
    if before == after:
        return ""
    if after.get(RESUME) == "never":
        return "cannot be resumed: the new run has `resume = never`"
    was, now = map(_by_key, (_settings(before), _settings(after)), (_settings(after), _settings(before)))
    division: Any = {name: after.get(DIVISION + name) for name in ("step", "processes", "micro")}
    why = same_run.differences(was, now, division)
    if why:
        return f"cannot be resumed: {why}"
    folders = before.get(FOLDER), after.get(FOLDER)
    moved = f" if they are moved from {folders[0]} to {folders[1]}" if folders[0] != folders[1] else ""
    return f"can be resumed{moved}" + next((why for key, value, why in STOPPED if before.get(key) == value), "")


def _by_key(table: dict[str, object], other: Mapping[str, object]) -> dict[str, object]:
    """If both runs have a list with the same number of records, such as the data sources, turn the values of these
    records into single settings such as `data[0].path` or `data[0].files[1].sha256`. For lists of different lengths,
    only the lengths are compared.
    """
    out: dict[str, object] = {}
    for name, value in table.items():
        lists = [one for one in (value, other.get(name)) if isinstance(one, list)]
        records = all(isinstance(each, dict) for one in lists for each in one)
        if records and len(lists) == 2 and len(lists[0]) != len(lists[1]):
            out[name] = f"{len(lists[0])} entries"
        elif records and len(lists) == 2:
            for at, pair in enumerate(zip(*lists, strict=True)):
                out |= _by_key(*({f"{name}[{at}].{key}": each for key, each in one.items()} for one in pair))
        else:
            out[name] = value
    return out


def _settings(tables: Mapping[str, object]) -> dict[str, object]:
    """Rename the keys of the emitted files: they get the names of the settings that the trainer compares
    (runtime/core/same_run.py, `settings`).
    """
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
