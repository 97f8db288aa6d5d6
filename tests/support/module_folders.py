"""Every folder of tests/ on sys.path, so that the modules of tests import each other by their bare names.

tests/conftest.py does it for pytest, and each program that `make` starts for itself. No two modules may have one name
(tests/test_vocabulary.py). A package, such as proof/measures, is imported by the package's name.
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
    """Append them to sys.path, where installed packages come first."""
    sys.path += [folder for folder in folders() if folder not in sys.path]
