"""Find a legal value of a setting, for help texts."""

from __future__ import annotations

import re

from xpc.compiler import stacks
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.tables import examples

VALUE = r"(\d+ x \S+|\[[^\]]*\]|\"[^\"]*\"|file\([^)]*\)|[^\s,(){]+)"


def example(row: Setting) -> str:
    """A legal value of a setting, for help texts: from the table of settings, the examples file, its default, or its
    type.
    """
    default = row.default
    if row.path == "target":
        return stacks.DEFAULT
    shown = row.example or _shown(row.path)
    if shown:
        return shown
    if row.choices:
        return row.choices[0]
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default}s" if row.kind.name == "duration" else f"{default:g}"
    return row.kind.example


def _shown(path: str) -> str:
    """The value in the setting's line of the examples file, or ""."""
    clause, _, name = path.rpartition(".")
    form = rf"\bfor (\S+) {name}" if clause == "train" else rf"\b{name}={VALUE}" if clause else rf"{name} {VALUE}"
    match = re.search(form, examples().get(path, ""))
    return match[1] if match is not None else ""
