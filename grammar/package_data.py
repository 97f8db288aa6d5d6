"""Texts and tables in files next to the module that uses them. Each file is read once, when it is first needed."""

from __future__ import annotations

import os
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@cache
def text(module: str, name: str) -> str:
    """The contents of the file `name` in the folder of a module, which is given by its `__file__`."""
    with open(os.path.join(os.path.dirname(os.path.abspath(module)), name), encoding="utf-8", newline="") as file:
        return file.read()


@cache
def sections(module: str, name: str) -> Mapping[str, str]:
    """The parts of a script, by name.

    A line `#: NAME`, perhaps with `: ` and a description, begins a part; none of these lines belongs to the script.
    """
    out: dict[str, str] = {}
    for line in text(module, name).splitlines(keepends=True):
        if line.startswith("#: "):
            part = line[3:].partition(":")[0].strip()
            out[part] = ""
        else:
            out[part] += line
    return out


@cache
def table(module: str, name: str) -> dict[str, Any]:
    """A TOML file. `xpc check` of a correct spec reads none, because the import of tomllib takes milliseconds."""
    import tomllib

    return tomllib.loads(text(module, name))
