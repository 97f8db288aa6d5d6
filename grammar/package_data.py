"""Read the texts and tables in files next to a module. Each file is read once, when it is first needed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@cache
def read_text(module: str, name: str) -> str:
    """The contents of a file in the folder of a module. `module` is the `__file__` of the module."""
    with open(os.path.join(os.path.dirname(os.path.abspath(module)), name), encoding="utf-8", newline="") as file:
        return file.read()


@cache
def read_sections(module: str, name: str) -> Mapping[str, str]:
    """Read a script that is divided into named parts. A line `#: NAME` begins a part; the part is the text after this
    line.

    The name may be followed by `: ` and a description. Lines before the first part are ignored.
    """
    _, *found = re.split(r"^#: (\w+).*\n", read_text(module, name), flags=re.MULTILINE)
    return dict(zip(found[::2], found[1::2]))


@cache
def read_json(module: str, name: str) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    found: dict[str, Any] = json.loads(read_text(module, name))
    return found


@cache
def read_table(module: str, name: str) -> dict[str, Any]:
    """Read a TOML file. `xpc check` of a spec without errors reads no TOML file, because importing tomllib would take
    milliseconds.
    """
    import tomllib

    return tomllib.loads(read_text(module, name))
