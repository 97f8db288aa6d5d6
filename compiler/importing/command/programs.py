"""Find the Python file that a command starts, such as `train.py` or `-m pkg.train`, in the repository."""

from __future__ import annotations

import re

from xpc.compiler.importing.overrides import Overrides


def found(program: str, overrides: Overrides) -> tuple[str, str]:
    """The path and the contents of the Python file that a command starts; two empty strings if the repository
    lacks it.
    """
    for one in _places(program):
        data = overrides.read(one)
        if data is not None:
            return one, data.decode("utf-8-sig", "replace")
    return "", ""


def _places(program: str) -> list[str]:
    """The paths at which to look for a program: `pkg/train.py` for the module `pkg.train`, and for a path of another
    machine such as `/home/me/repo/train.py` also `repo/train.py` and `train.py`.
    """
    if not program.endswith(".py"):
        if not re.fullmatch(r"[A-Za-z_][\w.]*", program):
            return []
        path = program.replace(".", "/")
        return [f"{path}.py", f"src/{path}.py", f"{path}/__main__.py"]
    parts = program.split("/")
    return [program, *("/".join(parts[n:]) for n in range(1, len(parts)))]
