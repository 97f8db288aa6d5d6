"""The parts of `xpc verify`: compute the files that a bundle should have, compare a bundle with these files, compare a
finished run with its bundle, and verify everything below a folder.
"""

from __future__ import annotations

from collections.abc import Callable

Verify = Callable[[str, str | None], tuple[str, int]]
"""A function that verifies a bundle or a finished run. Its first argument is the folder of the bundle. The second is
the path of the bundle's spec (None if there is no spec) or, for a finished run, its output folder. It returns the text
to print, and the exit status.
"""
