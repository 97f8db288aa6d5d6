"""The parts of `xpc verify`: compute the files that a bundle should have, and compare bundles, finished runs and
folders of both with what they should be.
"""

from __future__ import annotations

from collections.abc import Callable

Verify = Callable[[str, str | None], tuple[str, int]]
"""A function that verifies a folder. It returns the text to print, and the exit status."""
