"""Find scripts that import a module and call its functions. If the functions of a module train, its settings are in
such a script.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from xpc.compiler.importing.overrides import Overrides

MOST = 4
"""The largest number of scripts that are tried for a module."""
MAIN = re.compile(r"__name__\s*==|^\w*(?:main|train|run)\w*\(", re.MULTILINE)


def of(file: str, overrides: Overrides) -> Iterator[tuple[str, str, Overrides]]:
    """The scripts near the module `file` that import it and run something. Each is a path, the source text, and the
    options for reading the script.
    """
    stem = posixpath.basename(file).removesuffix(".py")
    imports = re.compile(
        rf"^\s*(?:from\s+[\w.]*\b{re.escape(stem)}\s+import\b|import\s+[\w.]*\b{re.escape(stem)}\b"
        rf"|from\s+[\w.]+\s+import\b.*\b{re.escape(stem)}\b)",
        re.MULTILINE,
    )
    count = 0
    for name, text in overrides.scripts():
        if posixpath.basename(name) == posixpath.basename(file) or not MAIN.search(text) or not imports.search(text):
            continue
        yield name, text, overrides.below(posixpath.dirname(name))
        count += 1
        if count == MOST:
            return
