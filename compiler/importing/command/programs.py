"""Find the Python file that a command starts, such as `train.py` or `-m pkg.train`, in the repository."""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.overrides import Overrides

DECLARED = re.compile(r"""\b(?:add_argument|option)\(\s*((?:["'][\w-]{1,60}["']\s*,\s*){1,8})""")
"""Matches the declaration of an argument with one or several names, such as `add_argument("--config", "-c", type=str)`.
"""
NAME = re.compile(r"""["']([\w-]+)["']""")


def found(program: str, overrides: Overrides) -> tuple[str, str]:
    """The path and the text of a command's script in the repository; two empty strings if it is not there.

    If the path in the command does not exist, the only file of the same name in the repository is used.
    """
    for one in _locations(program):
        data = overrides.read(one)
        if data is not None:
            return one, data.decode("utf-8-sig", "replace")
    known = "fastchat/train/" in program  # `train.py` is too common a name to look for FastChat's script elsewhere
    elsewhere = overrides.find(posixpath.basename(program)) if program.endswith(".py") and not known else []
    data = overrides.read(elsewhere[0]) if len(elsewhere) == 1 else None
    return ("", "") if data is None else (elsewhere[0], data.decode("utf-8-sig", "replace"))


def _locations(program: str) -> list[str]:
    """The paths where a program may be: `pkg/train.py` for the module `pkg.train`. A path of another machine, such as
    `/home/me/repo/train.py`, also gives its last parts: `repo/train.py` and `train.py`.
    """
    if not program.endswith(".py"):
        if not re.fullmatch(r"[A-Za-z_][\w.]*", program):
            return []
        path = program.replace(".", "/")
        return [f"{path}.py", f"src/{path}.py", f"{path}/__main__.py"]
    parts = program.split("/")
    return [program, *("/".join(parts[n:]) for n in range(1, len(parts)))]


def short_options(text: str) -> dict[str, str]:
    """Maps each short option that a script declares with argparse or click to its long name: `-c` to `--config`."""
    out: dict[str, str] = {}
    for declared in DECLARED.finditer(text):
        names = NAME.findall(declared[1])
        long = next((one for one in names if one.startswith("--")), "")
        out.update({one: long for one in names if long and re.fullmatch("-[A-Za-z]", one)})
    return out
