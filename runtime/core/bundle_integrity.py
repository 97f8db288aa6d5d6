"""Compare the files of the bundle with the digests in bundle.toml. Standard library only.

The run stops if a file that is executed or rendered, such as a chat template, was changed. Other changed files are only
reported, in one line, because the owner may edit a bundle. The check finds mistakes and incomplete copies, but does not
protect against deliberate manipulation.
"""

import os
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path

from .bundle import manifest_digests
from .errors import say
from .feature import Bundle

CHECKED_LATER = ("data/",)
"""Folders whose files may be large. Their digests are compared later, when the data is read (``local_sources``)."""


def digest(path: str) -> str:
    """The digest of a file, in the format of bundle.toml. Raises OSError."""
    with open(path, "rb") as handle:
        return "sha256:" + file_digest(handle, "sha256").hexdigest()


def problems(bundle: Bundle) -> list[str]:
    """Return a finding for each changed file that is executed or rendered. Print a line about other changed files."""
    digests = manifest_digests(bundle.folder)
    checked = {name: why for one in bundle.features for name, why in one.check_files(bundle, digests).items()}
    changed = [name for name in changed_files(bundle.folder, digests) if name not in checked]
    if changed:
        shown = ", ".join(changed[:8]) + (f" and {len(changed) - 8} more" if len(changed) > 8 else "")
        say(f"changed since the bundle was compiled: {shown}")
    for name in shadowed(bundle):
        say(f"the libraries load the local folder {name}, not {name} of the Hugging Face Hub")
    return [why for why in checked.values() if why]


def shadowed(bundle: Bundle) -> list[str]:
    """Hub ids that are also the names of folders in the working directory: the libraries would load these folders."""
    ids = [bundle.model.get("id"), *(source.get("id") for source in bundle.sources())]
    return [name for name in dict.fromkeys(ids) if name and os.path.isdir(name)]


def changed_files(folder: str, digests: Mapping[str, str]) -> list[str]:
    """The files that differ from bundle.toml or are missing, and the Python files that bundle.toml does not list."""
    paths = {name: os.path.join(folder, name) for name in digests if not name.startswith(CHECKED_LATER)}
    found = [name for name, path in paths.items() if not os.path.isfile(path) or digest(path) != digests[name]]
    listed = modules(os.path.join(folder, "trainer")) if digests else []
    return sorted([*found, *(f"{name} (new)" for name in listed if name not in digests)])


def modules(trainer: str) -> list[str]:
    """The Python files of a trainer folder, named as in bundle.toml."""
    return sorted(one.relative_to(Path(trainer).parent).as_posix() for one in Path(trainer).rglob("*.py"))
