"""Conditions whose outcome does not follow from the script's text. `--partial` assumes and reports an outcome for
each.
"""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Location

PASSES = 6
"""The largest number of times that a script is interpreted. Each time, it may reach further conditions."""
UNUSUAL = re.compile(r"resum|checkpoint|debug|dry_run|smoke|\bdistributed|world_size|multi_?gpu|deepspeed")
"""Matches conditions that are false in a usual run, which starts from scratch on one GPU: `if args.resume:`."""
NAMED = re.compile(r"\(([^()\s][^()]*):([0-9]+)\)")


def deciding(draft: Draft, machine: Machine) -> list[Location]:
    """Find the conditions with an unknown outcome that cause errors of the draft. Returns their locations, in the order
    of the errors.
    """
    found: dict[Location, None] = {}
    for one in draft.messages:
        if one.severity != "error" or one.entry is None or "condition" not in one.why:
            continue
        locations = [Location(one.entry.file, one.entry.line)]
        locations += [Location(file, int(line)) for file, line in NAMED.findall(one.why)]
        for location in locations:
            for each in machine.undecided.get(location, ()):
                if each in machine.conditions and each not in machine.assumed_conditions:
                    found[each] = None
    return list(found)


def usual(machine: Machine, location: Location) -> bool:
    """Whether `--partial` assumes that a condition is true. It is assumed to be false if it is about resuming,
    debugging or several GPUs, or if it tests for a configuration file that the repository lacks or for a path that the
    script itself writes. Any other condition, such as a test that a data file exists, is assumed to be true.
    """
    text = machine.conditions[location]
    path = machine.tested.get(location, "")
    folder = "." not in posixpath.basename(path) and re.search(r"\bis_?file\(", text)
    negated = text.startswith("not ")
    if path.endswith((".yaml", ".yml", ".json", ".toml")) or path in machine.saved or (path and folder):
        return negated
    if negated and (path or re.search(r"(exists|isfile|is_file|isdir|is_dir)\(", text)):
        return False
    return not UNUSUAL.search(text.lower())


def report(draft: Draft, machine: Machine) -> None:
    """Add an error for each condition whose outcome was assumed. The help has the option `--set` for the opposite
    outcome. `--partial` turns these errors into decisions that the user confirms.
    """
    groups: dict[str, list[Location]] = {}
    for location in machine.assumed_conditions:
        if location in machine.conditions:
            groups.setdefault(" ".join(machine.conditions[location].split()), []).append(location)
    for text, locations in groups.items():
        truth = machine.assumed_conditions[locations[0]]
        name = f"{posixpath.basename(locations[0].file)}:{locations[0].line}"
        for location in locations:
            draft.error(
                location.entry(text[:100], truth),
                "the import cannot evaluate this condition and assumes that it is " + ("true" if truth else "false"),
                f"`--set {name}={'no' if truth else 'yes'}` assumes the opposite",
            )
