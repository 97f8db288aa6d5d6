"""Conditions whose outcome cannot be found in the script. `--partial` assumes an outcome for each of them, and reports
it.
"""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Place
from xpc.compiler.importing.text.entries import Entry

PASSES = 6
"""The largest number of times that a script is interpreted. Each time may reach conditions that were not reached
before.
"""
UNUSUAL = re.compile(r"resum|checkpoint|debug|dry_run|smoke|\bdistributed|world_size|multi_?gpu|deepspeed")
"""A pattern for conditions that are false in a usual run, which starts from scratch on one GPU: `if args.resume:`."""
NAMED = re.compile(r"\(([^()\s][^()]*):([0-9]+)\)")


def deciding(draft: Draft, machine: Machine) -> list[Place]:
    """The locations of the undecided conditions on which errors of the draft depend, in the order of the errors."""
    found: dict[Place, None] = {}
    for one in draft.messages:
        if one.severity != "error" or one.entry is None or "condition" not in one.why:
            continue
        places = [Place(one.entry.file, one.entry.line)]
        places += [Place(file, int(line)) for file, line in NAMED.findall(one.why)]
        for place in places:
            for each in machine.undecided.get(place, ()):
                if each in machine.conditions and each not in machine.assumed_conditions:
                    found[each] = None
    return list(found)


def usual(machine: Machine, place: Place) -> bool:
    """Whether `--partial` assumes that a condition is true. It assumes false for conditions about resuming, debugging
    or several GPUs, and true for all others. A configuration file that the repository lacks is assumed not to exist;
    any other file is assumed to exist.
    """
    text = machine.conditions[place]
    if place in machine.absent:
        return text.startswith("not ")
    if re.match(r"not .*(exists|isfile|is_file|isdir|is_dir)\(", text):
        return False
    return not UNUSUAL.search(text.lower())


def report(draft: Draft, machine: Machine) -> None:
    """Add an error for each assumed condition, with the `--set` option that reverses it. `--partial` turns the errors
    into decisions for a person.
    """
    groups: dict[str, list[Place]] = {}
    for place in machine.assumed_conditions:
        if place in machine.conditions:
            groups.setdefault(" ".join(machine.conditions[place].split()), []).append(place)
    for text, places in groups.items():
        truth = machine.assumed_conditions[places[0]]
        name = f"{posixpath.basename(places[0].file)}:{places[0].line}"
        for place in places:
            draft.error(
                Entry(text[:100], truth, place.file, place.line),
                "the import cannot evaluate this condition, and assumes that it is " + ("true" if truth else "false"),
                f"`--set {name}={'no' if truth else 'yes'}` assumes the opposite",
            )
