"""The parts of `xpc verify`: it computes the expected files, and compares files, finished runs and complete folders
with them.
"""

from __future__ import annotations

from collections.abc import Callable

Verify = Callable[[str, str | None], tuple[str, int]]
"""A function that verifies a folder. It returns the text to print, and the exit status."""
