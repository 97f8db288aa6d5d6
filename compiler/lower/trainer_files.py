"""The trainer of a bundle: the files of runtime/, verbatim, as many as the run needs. Of README.md's list of private
parts of the libraries, it has the rows of these files.

Which features a run uses is stated once, in `runtime/core/features.py`, which the compiler asks for trainer_args.json.
What a module imports at its top comes with it. Of the programs, `main.py` and `launcher.py` are in every
bundle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Payload

RUNTIME = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "runtime")
ALWAYS = ("README.md", "__init__.py", "main.py", "launcher.py")
"""The files beside the folders; `doctor.py` is asked by `xpc doctor` alone."""
BESIDE = "stage.py"
"""The program that stands beside trainer/, since no run needs it."""
ELSEWHERE = ("core/payload.py", "core/features.py")
"""What type checkers read, and what the compiler asks."""
CHOSEN = ("features", "library_internals")
"""Folders whose modules are chosen by what the run uses."""
IMPORTS = re.compile(rb"^from \.+(?:features|library_internals)?(?: import (.+)|\.?(\w+) import .+)$", re.MULTILINE)
"""Of modules of these folders, at the top of a file."""

TOUCHED = re.compile(rb"^\| `(\w+\.py)` \|.*\n", re.MULTILINE)
"""A row of README.md on a module of library_internals/."""


def trainer_files(plan: Payload, evaluates: bool = False) -> dict[str, bytes]:
    """The trainer of a run with this `trainer_args.json`, by name in the bundle; `evaluates` where it names tasks."""
    used = set(plan["trainer"]["modules"])
    programs = {*ALWAYS, *(["evaluate.py"] if evaluates else []), *(["vllm_server.py"] if _serves(plan) else [])}
    runtime, chosen, found = _runtime(), dict[str, bytes](), {"__init__"}
    while not found <= used or not chosen:
        used |= found
        chosen = {name: data for name, data in runtime.items() if _is_chosen(name, programs, used)}
        found = {one for data in chosen.values() for one in imported(data)}
    chosen["README.md"] = readme(chosen["README.md"], chosen)
    return {**{f"trainer/{name}": data for name, data in chosen.items()}, BESIDE: runtime[BESIDE]}


def readme(whole: bytes, chosen: Collection[str]) -> bytes:
    """The README.md of a trainer that has these files."""
    return TOUCHED.sub(lambda row: row[0] if f"library_internals/{row[1].decode()}" in chosen else b"", whole)


def _is_chosen(name: str, programs: set[str], used: set[str]) -> bool:
    folder, _, file = name.rpartition("/")
    if folder in CHOSEN:
        return file.removesuffix(".py") in used
    return name in programs or (folder == "core" and name not in ELSEWHERE)


@cache
def imported(source: bytes) -> frozenset[str]:
    """The modules that a file imports at its top, by their names, among those of the folders that are chosen from."""
    names = [several or one for several, one in IMPORTS.findall(source)]
    return frozenset(one.strip().partition(" ")[0] for one in b",".join(names).decode().split(",")) & _choice()


@cache
def _choice() -> set[str]:
    """The modules of these folders."""
    return {os.path.basename(name).removesuffix(".py") for name in _runtime() if name.rpartition("/")[0] in CHOSEN}


def _serves(plan: Payload) -> bool:
    """Whether a vLLM server of its own generates."""
    arguments = plan["arguments"]
    assert isinstance(arguments, dict)
    return bool(arguments.get("use_vllm")) and arguments.get("vllm_mode") != "colocate"


@cache
def _runtime() -> dict[str, bytes]:
    """Every file of the runtime by its name there; read once a process."""
    out = {}
    for where, folders, names in os.walk(RUNTIME):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        below = os.path.relpath(where, RUNTIME).replace(os.sep, "/")
        for name in sorted(names):
            with open(os.path.join(where, name), "rb") as handle:
                out[name if below == "." else f"{below}/{name}"] = handle.read()
    return out
