"""The trainer of a bundle: the files of runtime/, verbatim, as many as the run needs.

Which features a run uses is stated once, in `runtime/core/features.py`: the runtime asks the same table before it
imports one. Of the programs, `main.py` and `launcher.py` are in every bundle.
"""

from __future__ import annotations

import os
from functools import cache

from xpc.runtime.core.features import uses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Payload

RUNTIME = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "runtime")
ALWAYS = ("README.md", "__init__.py", "main.py", "launcher.py")
"""The files beside the folders; `doctor.py` is asked by `xpc doctor` alone."""
TYPES = "core/payload.py"
"""Read by type checkers alone."""
CHOSEN = ("features", "library_internals")
"""Folders whose modules are chosen by what the run uses."""


def trainer_files(plan: Payload, evaluates: bool = False) -> dict[str, bytes]:
    """The trainer of a run with this `trainer_args.json`, by name in the bundle; `evaluates` where it names tasks."""
    used = {name for name, asked in uses(plan).items() if asked}
    if evaluates:
        used |= {"executed_files", "lm_eval_harness"}
    programs = {*ALWAYS, *(["evaluate.py"] if evaluates else []), *(["vllm_server.py"] if _serves(plan) else [])}
    out = {}
    for name, data in _runtime().items():
        if name == TYPES:
            continue
        folder, _, file = name.rpartition("/")
        module = file.removesuffix(".py")
        if name in programs or folder == "core" or (folder in CHOSEN and (module in used or module == "__init__")):
            out[f"trainer/{name}"] = data
    return out


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
