"""Find the spec's local files and folders that are not copied into the bundle."""

import os
from collections.abc import Mapping

from ...core.errors import RunError
from ...core.feature import Bundle, Feature


class LocalFiles(Feature):
    """Hooks for a run with a local model."""

    def local_model(self, bundle: Bundle, model: Mapping[str, object], place: str) -> str:
        """The folder of a local model. Raises RunError if it is not found."""
        return find(bundle.folder, place) if model["id"] is None else place


def find(folder: str, path: str) -> str:
    """Find a local file or folder of the spec: under $XPC_DATA_ROOT, else next to the bundle ``folder`` or next to its
    sweep, else in the working directory.

    Raises RunError with every place that was tried.
    """
    if os.path.isabs(path):
        places = [path]
    else:
        above = os.path.dirname(folder)
        sweep = os.path.dirname(above) if os.path.basename(above) == "members" else ""
        sweep = os.path.dirname(sweep) if os.path.exists(os.path.join(sweep, "sweep.toml")) else ""
        roots = [os.environ.get("XPC_DATA_ROOT"), above, sweep, os.getcwd()]
        places = [os.path.join(root, path) for root in roots if root]
    for place in places:
        if os.path.exists(place):
            if not (os.path.isfile(place) or os.path.isdir(place)):  # reading a named pipe might never end
                raise RunError(f"{place} is neither a file nor a folder")
            return os.path.abspath(place)
    tried = ", ".join(dict.fromkeys(places))
    raise RunError(f"{path!r} was not found; tried {tried}; set XPC_DATA_ROOT to the folder that contains it")
