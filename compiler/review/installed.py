"""Compare the installed packages of an interpreter with the pins of a bundle."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

from xpc.compiler.files.bundle_digests import read_regular
from xpc.compiler.files.inputs import UsageError

SECONDS = 60
"""Time limit in seconds for a Python interpreter to list its packages."""
QUERY = """
import importlib.metadata, json, sys
found = {}
for name in json.load(sys.stdin):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


def verify_environment(folder: str, python: str) -> tuple[str, int]:
    """Return the text to print and the exit status, which is 1 if a package is missing or has another version. Raises
    UsageError.
    """
    pinned = _all_pins(folder)
    found = _installed(python, sorted(pinned))
    wrong = [
        f"{name} {f'{found[name]} is' if found[name] else 'is not'} installed, but the bundle pins {version}"
        for name, version in sorted(pinned.items())
        if plain_version(found[name]) != version
    ]
    if wrong:
        return "\n".join([*wrong, f"{python} does not have the packages that {folder} pins", ""]), 1
    return f"{python} has the {len(pinned)} packages that {folder} pins\n", 0


def _all_pins(folder: str) -> dict[str, str]:
    """The pins of all requirements files in a bundle. All of them must be installed, because the bundle's README.md
    tells users to install them.
    """
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        if re.fullmatch(r"requirements(-\w+)?\.txt", name):
            found |= pins(os.path.join(folder, name))
    return found


def pins(path: str) -> dict[str, str]:
    """The pins of a requirements file. Raises UsageError if it is not a regular file."""
    return pins_of(read_regular(path))


def pins_of(data: bytes) -> dict[str, str]:
    """Every `name==version` of a requirements file, as a mapping from name (without extras) to version."""
    text = data.decode("utf-8", "replace")
    lines = [line.partition("#")[0].partition(";")[0].partition("==") for line in text.splitlines()]
    return {name.partition("[")[0].strip(): version.strip() for name, equals, version in lines if equals}


def plain_version(version: str | None) -> str | None:
    """A version without its local part: `2.8.0+cu126` becomes `2.8.0`."""
    return None if version is None else version.partition("+")[0]


def _installed(python: str, names: list[str]) -> dict[str, str | None]:
    program = shutil.which(python)
    if program is None:
        raise UsageError(f"there is no interpreter {python}; name one with --python")
    try:
        done = subprocess.run(
            [program, "-I", "-c", QUERY], input=json.dumps(names), text=True, capture_output=True, check=True,
            timeout=SECONDS,
        )  # fmt: skip
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UsageError(f"{python} could not list its packages: {type(error).__name__}") from error
    return found
