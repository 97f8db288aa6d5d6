"""Import LLaMA-Factory's commands: `llamafactory-cli train FILE key=value`, and `train_bash.py --key value` of its web
page and older scripts.

Source: LLaMA-Factory 0.9.5, launcher.py and hparams/parser.py.
"""

from __future__ import annotations

import os
import re

from xpc.compiler.importing.command.line import Line
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory.keys import VERBS
from xpc.compiler.importing.llamafactory.reader import llamafactory
from xpc.compiler.importing.overrides import Overrides, counted
from xpc.compiler.importing.text.entries import Entries, Entry, Unreadable, integer
from xpc.grammar.record import evolve

SCRIPTS = ("train_bash.py", "train.py", "run_exp.py", "train_sft.py")
"""Names of LLaMA-Factory's training scripts. Other tools have them too, so the command must also have the argument
`finetuning_type`.
"""
STARTED = re.compile(r"^[ \t]*from llamafactory\.train\.tuner import .*\brun_exp\b", re.MULTILINE)
"""Matches an import of `run_exp`, which starts LLaMA-Factory with the arguments of the calling script."""
PROCESSES, NODES = ("nproc_per_node", "num_processes", "num_gpus"), ("nnodes", "num_machines")
OPTIONS = {
    **dict.fromkeys(PROCESSES, "hardware"), **dict.fromkeys(NODES, "nodes"), "config_file": "the file was read",
}  # fmt: skip
"""Maps an option of a launcher to the settings that it becomes."""
GPU = "h100-80gb"


def is_llamafactory(program: str, arguments: Entries) -> bool:
    """Whether a command starts LLaMA-Factory."""
    if program.startswith("llamafactory-cli"):
        return True
    return os.path.basename(program) in SCRIPTS and "finetuning_type" in arguments


VISIBLE, EACH = "$CUDA_VISIBLE_DEVICES", "$NPROC_PER_NODE"
"""Environment variables that determine the number of processes. `llamafactory-cli` starts NPROC_PER_NODE processes; if
this is not set, one process for each GPU in CUDA_VISIBLE_DEVICES (launcher.py).
"""


def factory(line: Line, inside: Entries, overrides: Overrides) -> Draft:
    """Convert a LLaMA-Factory command to a draft of the spec. `inside` has the keys of the configuration file that the
    command names. Raises Unreadable if another positional word is not of the form `key=value`.
    """
    entries = {**inside, **line.arguments}
    overridden = [one for key, one in inside.items() if key in line.arguments]
    for word in line.rest:
        key, equals, value = word.text.partition("=")
        if not equals:
            raise Unreadable(f"`{word.text[:60]}` is not `key=value`", word.line)
        overridden += [entries[key]] if key in entries else []
        entries[key] = Entry(key, value, line.file, word.line, value)
    variable = _variable(line)
    count, nodes = _machines(line.options, variable)
    joined = evolve(
        overrides,
        method=overrides.method or VERBS.get(line.program.partition(" ")[2]),
        hardware=counted(overrides.hardware or GPU, count) if overrides.hardware or count else None,
        nodes=overrides.nodes or (nodes if nodes and nodes > 1 else None),
    )
    draft = llamafactory(entries, line.file, joined)
    for over in overridden:
        if not draft.handled(over):
            draft.note(over, f"line {entries[over.key].line} of the command overrides it")
    if variable is not None and count:
        draft.mark(variable, "mapped", "hardware")
    for key, one in line.options.items():
        if key in OPTIONS:
            draft.mark(one, "mapped", OPTIONS[key])
        else:
            draft.note(one, "it only affects how processes are started on one machine")
    if count and overrides.hardware is None:
        draft.warn(None, f"the command does not state the GPUs: {count} x {GPU} is assumed", "`--hardware` names it")
    return draft


def _variable(line: Line) -> Entry | None:
    """The environment variable that determines how many processes `llamafactory-cli` starts: its name and value."""
    seen = {one.key: one for _, one in line.variables()} if line.program.startswith("llamafactory-cli") else {}
    return seen.get(EACH, seen.get(VISIBLE))


def _machines(options: Entries, variable: Entry | None) -> tuple[int | None, int | None]:
    """Return the number of processes on each node, and the number of nodes; None for a number that neither the options
    nor the environment variable state.
    """
    count, nodes = (
        next((integer(options[key]) for key in keys if key in options), None) for keys in (PROCESSES, NODES)
    )
    if count and nodes and "num_processes" in options:
        count //= nodes  # `num_processes` counts the processes of all nodes
    if variable is not None and variable.key == EACH:
        count = integer(variable)
    elif variable is not None and re.fullmatch(r"[\d,\s]+", str(variable.value)):
        count = len(str(variable.value).strip(", ").split(","))
    return count, nodes
