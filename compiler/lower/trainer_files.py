"""Select the files of a bundle's trainer: the files of runtime/ that the run needs, unchanged.

Two files are shortened. In enabled.py, the lines of features that the run does not use are removed. In the table of
README.md, the rows about modules that the bundle does not contain are removed.

`runtime/core/conditions.py` decides which features a run uses. Modules that a selected module imports are also
selected. The programs `main.py` and `launcher.py` are in every bundle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import cache

from xpc.runtime.core.conditions import enabled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Payload

RUNTIME = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "runtime")
ALWAYS = ("README.md", "__init__.py", "enabled.py", "main.py", "launcher.py")
"""Files directly in `trainer/` that every bundle has. `doctor.py` is missing, because only `xpc doctor` runs it."""
NEXT_TO_TRAINER = (
    "stage.py", "rehearse.py", "prepare_rows.py", "batched_map.py", "batched_calls.py", "token_places.py", "picture.py",
    "result.py",
)  # fmt: skip
"""Files of runtime/ that a bundle contains next to `trainer/`. Some of them run before the training (they fetch files,
rehearse the run or prepare rows), the others after it (they plot the run or compute its result).
"""
ELSEWHERE = ("core/payload.py", "core/payload_data.py", "core/library_types.py", "core/conditions.py")
"""Files of runtime/ that no bundle contains: three have types for type checkers, and only the compiler reads
conditions.py.
"""
CHOSEN = ("features", "library_internals")
"""Folders of runtime/ from which a bundle contains only the files that another file of the bundle imports."""
IMPORTS = re.compile(rb"^ *from (\.+)([\w.]*) import (.+)$", re.MULTILINE)
"""Matches a line in which a file of runtime/ imports another one. The line may be inside a function."""

TOUCHED = re.compile(rb"^\| `(\w+\.py)` \|.*\n", re.MULTILINE)
"""Matches a row of the table in the trainer's README.md. Each row describes one module of library_internals/."""


def trainer_files(plan: Payload, evaluates: bool = False) -> dict[str, bytes]:
    """The files of the trainer, by their names in the bundle. `plan` is the content of trainer_args.json. `evaluates`
    is true if the spec names evaluation tasks.
    """
    runtime = _runtime()
    chosen = {"enabled.py": enabled(runtime["enabled.py"].decode(), plan).encode()}
    left = [*ALWAYS, *(["evaluate.py"] if evaluates else []), *(["vllm_server.py"] if _serves(plan) else [])]
    left += [name for name in runtime if name.startswith("core/") and name not in ELSEWHERE]
    while left:
        name = left.pop()
        data = chosen.setdefault(name, runtime[name])
        left += imported(name, data) - chosen.keys()
    chosen["README.md"] = readme(chosen["README.md"], chosen)
    return {
        **{f"trainer/{name}": chosen[name] for name in runtime if name in chosen},
        **{name: runtime[name] for name in NEXT_TO_TRAINER},
    }


def readme(whole: bytes, chosen: Collection[str]) -> bytes:
    """The trainer's README.md, shortened for a bundle that has the files `chosen`."""
    return TOUCHED.sub(lambda row: row[0] if f"library_internals/{row[1].decode()}" in chosen else b"", whole)


@cache
def imported(name: str, source: bytes) -> frozenset[str]:
    """The files of features/ and library_internals/ that a runtime file imports, and the `__init__.py` files of the
    folders that contain them.
    """
    found = set[str]()
    for dots, module, names in IMPORTS.findall(source):
        folders = [*name.split("/")[: -len(dots)], *module.decode().split(".")]
        base = "/".join(one for one in folders if one)
        found.update((f"{base}.py", *(f"{base}/{one.split()[0]}.py" for one in names.decode().split(","))))
    found = {one for one in found if one.partition("/")[0] in CHOSEN} & _runtime().keys()
    parents = {"/".join(one.split("/")[:depth]) for one in found for depth in range(1, one.count("/") + 1)}
    return frozenset(found | {f"{one}/__init__.py" for one in parents})


def _serves(plan: Payload) -> bool:
    """Whether a separate vLLM server generates the completions of the run."""
    arguments = plan["arguments"]
    assert isinstance(arguments, dict)
    return bool(arguments.get("use_vllm")) and arguments.get("vllm_mode") != "colocate"


@cache
def _runtime() -> dict[str, bytes]:
    """All files of runtime/, by their names relative to this folder. A process reads them once."""
    out = {}
    for where, folders, names in os.walk(RUNTIME):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        below = os.path.relpath(where, RUNTIME).replace(os.sep, "/")
        for name in sorted(names):
            with open(os.path.join(where, name), "rb") as handle:
                out[name if below == "." else f"{below}/{name}"] = handle.read()
    return out
