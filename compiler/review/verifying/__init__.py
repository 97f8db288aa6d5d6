"""The parts of `xpc verify`: compute the files that a bundle should have, compare a bundle with these files, compare a
finished run with its bundle, and verify everything below a folder.
"""

from __future__ import annotations

from collections.abc import Callable

Verify = Callable[[str, str | None], tuple[str, int]]
"""A function that verifies a bundle or a finished run. Its arguments are the folder of the bundle, and the path with
which this is compared: the bundle's spec (None if there is none), or the run's output folder. It returns the text to
print, and the exit status.
"""
