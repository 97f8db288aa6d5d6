"""The Python and the packages that are installed, as they are compared with what the bundle pins. Standard library."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

PYTHON = ((3, 11), (3, 13))
"""The oldest and the newest Python that the runtime is for."""


def fits() -> bool:
    """Whether this Python is one of those."""
    return PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]


def installed(name: str) -> str | None:
    """The version of a package with its local part (2.13.0+cpu); None where it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plain(version: str) -> str:
    """A version without its local part, which makes no difference to a pin."""
    return version.split("+")[0]
