"""A value that a setting may have, for help texts."""

from __future__ import annotations

from xpc.compiler import stacks
from xpc.compiler.language.schema import Setting


def example(row: Setting) -> str:
    """A legal value of a setting: its default where that can be typed, else one of its kind."""
    default = row.default
    if row.path == "target":
        return stacks.DEFAULT
    if row.choices:
        return row.choices[0]
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default}s" if row.kind.name == "duration" else f"{default:g}"
    return row.kind.example
