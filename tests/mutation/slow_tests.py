"""Choose the slow tests that may notice a mistake in a source file."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FURTHER = {
    "compiler/engines/*": ("tests/launch/test_submissions.py",),
    "runtime/core/checkpoint_integrity.py": ("tests/faults/test_checkpoint_files.py", "tests/faults/test_damage.py"),
    "runtime/*": ("tests/proof/training/test_train.py", "tests/faults/test_kills.py"),
}
"""Maps patterns for source files to tests that start programs which run these files, but that do not import them. `*`
also matches slashes.
"""


def slow_tests(file: str) -> list[str]:
    """The files and folders of tests that run against a mutant of this source file. First come the test files that
    import the module, then the folder of tests of its room, then `FURTHER`.
    """
    further = (names for like, names in FURTHER.items() if fnmatch(file, like))
    found = [*importers(file), *mirrored_folder(file), *(name for names in further for name in names)]
    return list(dict.fromkeys(one for one in found if os.path.exists(os.path.join(REPOSITORY, one))))


def importers(file: str) -> list[str]:
    """The test files that import the module of this source file."""
    module = "xpc." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return [name for name, imported in _imports().items() if module in imported]


def mirrored_folder(file: str) -> list[str]:
    """The folder of tests that mirrors the folder of this source file, such as tests/rules/strategy. Empty if there is
    none.
    """
    package, *rooms = file.removesuffix(".py").split("/")
    parts = rooms if package == "compiler" else [package, *(one for one in rooms if one not in ("features", "core"))]
    for depth in range(len(parts), 0, -1):
        folder = os.path.join("tests", *parts[:depth])
        if os.path.isdir(os.path.join(REPOSITORY, folder)):
            return [folder]
    return []


@cache
def _imports() -> dict[str, frozenset[str]]:
    """Map each test file to the dotted names that it imports."""
    found = {}
    for folder, _, names in os.walk(os.path.join(REPOSITORY, "tests")):
        for name in sorted(names):
            if name.startswith("test_") and name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb") as handle:
                    found[os.path.relpath(path, REPOSITORY)] = frozenset(_names(ast.parse(handle.read())))
    return found


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
