"""The files of the bundle against the digests that its bundle.toml states. Standard library only.

What is executed or rendered has to be the file that was compiled. What else was changed by hand is told in one line,
and the run goes on: a bundle is its owner's to change. This finds mistakes and half-made copies, not an intruder.
"""

import os
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path

from .bundle import manifest_digests
from .errors import say
from .feature import Bundle

CHECKED_LATER = ("data/",)
"""Files whose digest the reader of the data compares anyway (``sources``); they may be large."""


def digest(path: str) -> str:
    """The digest of a file as bundle.toml states it. Raises OSError."""
    with open(path, "rb") as handle:
        return "sha256:" + file_digest(handle, "sha256").hexdigest()


def problems(bundle: Bundle) -> list[str]:
    """Why this bundle cannot run as it stands; says in one line what else was changed since it was compiled."""
    digests = manifest_digests(bundle.folder)
    checked = {name: why for one in bundle.features for name, why in one.check_files(bundle, digests).items()}
    changed = [name for name in changed_files(bundle.folder, digests) if name not in checked]
    if changed:
        shown = ", ".join(changed[:8]) + (f" and {len(changed) - 8} more" if len(changed) > 8 else "")
        say(f"changed since the bundle was compiled: {shown}")
    for name in shadowed(bundle):
        say(f"{name} is a folder here, which the libraries read in the place of the hub's")
    return [why for why in checked.values() if why]


def shadowed(bundle: Bundle) -> list[str]:
    """The ids of the hub that are folders where the run was started: transformers and datasets prefer those."""
    ids = [bundle.model.get("id"), *(source.get("id") for source in bundle.sources())]
    return [name for name in dict.fromkeys(ids) if name and os.path.isdir(name)]


def changed_files(folder: str, digests: Mapping[str, str]) -> list[str]:
    """The files that are not what bundle.toml states, those that are gone, and Python files that it does not list."""
    paths = {name: os.path.join(folder, name) for name in digests if not name.startswith(CHECKED_LATER)}
    found = [name for name, path in paths.items() if not os.path.isfile(path) or digest(path) != digests[name]]
    listed = modules(os.path.join(folder, "trainer")) if digests else []
    return sorted([*found, *(f"{name} (new)" for name in listed if name not in digests)])


def modules(trainer: str) -> list[str]:
    """The Python files of a trainer folder, as bundle.toml names them."""
    return sorted(one.relative_to(Path(trainer).parent).as_posix() for one in Path(trainer).rglob("*.py"))
