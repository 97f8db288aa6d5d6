"""Find scripts that import a module and call its functions. If a function of the module starts the training, such a
script may state the settings of the run.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from xpc.compiler.importing.overrides import Overrides

MOST = 4
"""The largest number of importing scripts that are tried for a module that does not train itself."""
DEPTH = 3
"""The largest length of a chain of imports from a script to the module."""
MAIN = re.compile(r"__name__\s*==|^\w*(?:main|train|run)\w*\(", re.MULTILINE)


def of(file: str, overrides: Overrides) -> Iterator[tuple[str, str, Overrides]]:
    """Find the scripts near the module `file` that start a run and import the module, directly or through another
    module. Yields each script's path and source text, and the options for reading the script.
    """
    scripts = [one for one in overrides.scripts() if posixpath.basename(one[0]) != posixpath.basename(file)]
    modules, seen, count = [file], {file}, 0
    for _ in range(DEPTH):
        found = [one for one in scripts if one[0] not in seen and any(_imports(one[1], name) for name in modules)]
        for name, text in found:
            if MAIN.search(text):
                yield name, text, overrides.below(posixpath.dirname(name))
                count += 1
            if count == MOST:
                return
        folder = posixpath.dirname(file)
        modules = [posixpath.join(folder, name) for name, text in found if not MAIN.search(text)]
        seen.update(name for name, _ in found)


def _imports(text: str, file: str) -> bool:
    """Whether a script imports the module `file`. If `file` is the `__init__.py` of a package, the module's name is the
    name of its folder.
    """
    name = posixpath.normpath(file)
    name = posixpath.dirname(name) if posixpath.basename(name) == "__init__.py" else name
    stem = re.escape(posixpath.basename(name).removesuffix(".py"))
    if not stem.strip("."):
        return False
    pattern = (
        rf"^\s*(?:from\s+[\w.]*\b{stem}\s+import\b|import\s+[\w.]*\b{stem}\b|from\s+[\w.]+\s+import\b.*\b{stem}\b)"
    )
    return re.search(pattern, text, re.MULTILINE) is not None
