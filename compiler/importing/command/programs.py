"""Find the Python script or module that a command starts in the repository."""

from __future__ import annotations

import re

from xpc.compiler.importing.overrides import Overrides


def found(program: str, overrides: Overrides) -> tuple[str, str]:
    """The path and the text of a command's script in the repository; both empty if it is not there."""
    for one in _places(program):
        data = overrides.read(one)
        if data is not None:
            return one, data.decode("utf-8-sig", "replace")
    return "", ""


def _places(program: str) -> list[str]:
    """The paths of a program in the repository: as in the command, of a module (`-m pkg.train`), and, for a path of
    another folder or machine, its ends.
    """
    if not program.endswith(".py"):
        if not re.fullmatch(r"[A-Za-z_][\w.]*", program):
            return []
        path = program.replace(".", "/")
        return [f"{path}.py", f"src/{path}.py", f"{path}/__main__.py"]
    parts = program.split("/")
    return [program, *("/".join(parts[n:]) for n in range(1, len(parts)))]
