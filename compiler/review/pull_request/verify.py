"""Verify those bundles and sweeps that contain changed files. pre-commit passes the paths of the changed files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from xpc.compiler.files.bundle import MANIFESTS
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.render.output import show
from xpc.compiler.review import verify as command


def verify(paths: Sequence[str]) -> int:
    """Verify the bundles and sweeps that contain the files `paths`, and print the result. Returns the same exit status
    as `xpc verify`.
    """
    status = 0
    for folder in dict.fromkeys(_folders(paths)):
        try:
            text, own = command.run(command.parse(["--", folder]))
            show(text)
        except UsageError as error:
            show(f"xpc: {error}", sys.stderr)
            own = 2
        status = max(status, own)
    return status


def _folders(paths: Iterable[str]) -> Iterator[str]:
    """For each file, the outermost folder around it that has a manifest. This is the folder of a sweep, or of a single
    bundle.
    """
    for path in paths:
        parts = path.split("/")[:-1]
        folders = ("/".join(parts[:length]) for length in range(1, len(parts) + 1))
        around = (one for one in folders if any(os.path.isfile(os.path.join(one, name)) for name in MANIFESTS))
        yield from list(around)[:1]
