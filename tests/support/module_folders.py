"""Put every folder of tests/ on sys.path, so that test modules import each other by name: `from patience import HUNG`.

tests/conftest.py calls `put_on_path` for pytest; each program that `make` starts calls the function itself. Because all
folders are on one path, no two modules may have the same name (tests/test_vocabulary.py). Packages, such as
proof/measures, are imported by the package's name.
"""

from __future__ import annotations

import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def folders() -> list[str]:
    """The folders below tests/ that have modules and are not packages."""
    found = []
    for folder, below, names in os.walk(TESTS):
        below[:] = sorted(name for name in below if name != "__pycache__")
        if "__init__.py" not in names and any(name.endswith(".py") for name in names):
            found.append(folder)
    return found


def put_on_path() -> None:
    """Append the `folders` to the end of sys.path, so that installed packages take precedence."""
    sys.path += [folder for folder in folders() if folder not in sys.path]
