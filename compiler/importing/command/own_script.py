"""Import a command that launches the repository's own script, by reading the script with the command's arguments."""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.command.line import Line
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import DEFAULT_GPU, Overrides
from xpc.compiler.importing.python.interpreter.machine import PRESENT
from xpc.compiler.importing.text.entries import Entry, Unreadable, plain
from xpc.grammar.record import evolve

PROCESSES = ("nproc_per_node", "num_gpus", "num_processes")
"""The launchers' options that name the processes, on one node."""
UNDERSTOOD = {*PROCESSES, "master_port", "main_process_port", "include", "rdzv_backend", "standalone"}
"""The launchers' options that change only the number of processes of a script's training."""


class Given(dict[str, str]):
    """The command's arguments. `used` records the names that the script's parser looks up."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.used: set[str] = set()

    def get(self, key: str, default: object = None) -> str | None:  # type: ignore[override]
        """The value of an argument."""
        self.used.add(key)
        return super().get(key)


def draft(line: Line, overrides: Overrides) -> Draft | None:
    """The draft of a script that the command launches, if the script defines its own arguments (argparse and others)
    and its own trainer. None for other programs, whose arguments have TRL's names, and for launches with a
    configuration of accelerate or DeepSpeed.
    """
    program = next((one for one in _places(line.program) if overrides.read(one) is not None), "")
    data = overrides.read(program) if program else None
    options = set(line.options) | {"deepspeed", "deepspeed_config"} & set(line.arguments)
    if data is None or not options <= UNDERSTOOD or any(one.text.startswith("-") for one in line.rest):
        return None
    text = data.decode("utf-8", "replace")
    if "Trainer(" not in text or "add_argument(" not in text or re.search(r"(?:Hf|H4)ArgumentParser|TrlParser", text):
        return None
    from xpc.compiler.importing.python.reader import python

    given = {key: _text(one) for key, one in line.arguments.items() if not one.unset}
    given |= {str(n + 1): one.text for n, one in enumerate(line.rest)}
    count = next((plain(line.options[key]) for key in PROCESSES if key in line.options), None)
    hardware = overrides.hardware
    if hardware is None and isinstance(count, int | str) and str(count).isdecimal() and int(count) > 1:
        hardware = f"{int(count)} x {DEFAULT_GPU}"
    sets = Given({**given, **overrides.sets})
    try:
        near = evolve(overrides.below(posixpath.dirname(program)), sets=sets, hardware=hardware)
        found = python(text, program, near)
    except Unreadable:
        return None
    if program != line.program:
        found.warn(None, f"`{line.program}` is a path of another machine: `{program}` is read")
    found.messages = [one for one in found.messages if not one.text.startswith("`command line`")]
    for key, one in line.arguments.items():
        if one.unset:
            found.error(one, f"the script does not set {one.unset}", "`--set NAME=VALUE` sets it")
        elif key in sets.used:
            found.mark(one, "mapped", f"an argument of `{line.program}`")
        else:
            found.error(one, f"`{line.program}` has no such argument", "leave it out if it has no effect")
    return found


def _places(program: str) -> list[str]:
    """A script's path as in the command; for an absolute path, also its ends, because the first folders may be another
    machine's.
    """
    if not program.endswith(".py"):
        return []
    parts = program.split("/")
    return [program, *("/".join(parts[n:]) for n in range(1, len(parts)))] if program.startswith("/") else [program]


def _text(one: Entry) -> str:
    """An argument as the command has it: several values as one text, a switch as PRESENT."""
    value = plain(one)
    if value is True:
        return PRESENT
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
