"""Generate `paths.py`, the type of all paths of settings, from the table of settings (`make docs`).

With this type, mypy reports `spec.flag("memory.chekpointing")`, a misspelt path, and `spec.flag("optimizer")`, a
setting that is not a flag.
"""

from __future__ import annotations

import os
from textwrap import fill

from xpc.compiler.language import schema

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "paths.py")
GETTERS = {
    "Flag": ("flag",),
    "Integer": ("int", "tokens", "duration"),
    "Real": ("real",),
    "Text": ("choice", "hardware", "name", "path", "repository", "text"),
    "Amount": ("every", "real_or_share", "rows_or_share", "share", "steps_or_share"),
    "Reals": ("reals",),
    "Names": ("choices", "names", "targets", "tasks"),
    "Weighted": ("functions", "weighted"),
    "Other": ("block", "file", "model", "rope", "sources", "template", "text_or_file"),
}
"""Maps the beginning of a generated type's name to the kinds of settings that belong to the type. For example, the type
`FlagPath` begins with `Flag`, and contains the paths of the settings of kind `flag`. The getter `spec.flag` accepts
only these paths.
"""
HEAD = '''"""For each getter of `Spec`, the type of the paths that it can read.

Generated from the table of settings (schema.py) by `make docs`. Imported only for its types.
"""

from typing import Literal

'''


def source() -> str:
    """The source text of `paths.py`."""
    out = HEAD
    for getter, kinds in GETTERS.items():
        paths = [f'"{row.path}"' for row in schema.TABLE if row.kind.name in kinds]
        lines = fill(f"{', '.join(paths)},", 116, break_on_hyphens=False).replace("\n", "\n    ")
        out += f"{getter}Path = Literal[\n    {lines}\n]  # fmt: skip\n"
    return out + "Path = " + " | ".join(f"{getter}Path" for getter in GETTERS) + "\n"


if __name__ == "__main__":
    with open(OUT, "w", encoding="utf-8") as handle:
        handle.write(source())
    print(f"wrote {os.path.relpath(OUT)}")
