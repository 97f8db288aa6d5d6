"""Files and folders of the spec: the bundle's copies, and where those are looked for that it has no copy of."""

from __future__ import annotations

import os

from ..core.bundle import Bundle
from ..core.errors import RunError


def find(bundle: Bundle, path: str, bundled: str | None = None) -> str:
    """A local file or folder of the spec: the bundle's copy, else under $XPC_DATA_ROOT, beside the bundle, or here.

    Raises RunError that names every place that was tried.
    """
    if bundled is not None:
        return bundle.inside(bundled)
    if os.path.isabs(path):
        places = [path]
    else:
        roots = [os.environ.get("XPC_DATA_ROOT"), os.path.dirname(bundle.folder), os.getcwd()]
        places = [os.path.join(root, path) for root in roots if root]
    for place in places:
        if os.path.exists(place):
            return os.path.abspath(place)
    raise RunError(f"{path!r} was not found; tried " + ", ".join(dict.fromkeys(places)))
