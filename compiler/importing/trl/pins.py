"""Find the versions of TRL that a repository requires. The script states them (`# dependencies = ["trl==1.6.0"]`, `!pip
install trl==0.8.6`), or a file such as requirements.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.trl.versions import numbers

FILES = (
    "uv.lock", "requirements.txt", "pyproject.toml", "environment.yml", "environment.yaml", "setup.py",
    "requirements/train.txt",
)  # fmt: skip
"""Files that state which packages a repository needs. A file that states exact versions comes before a file that states
ranges. Other files such as requirements-gpu.txt are searched last.
"""
OWN = b'name = "xpc"'
"""A line of xpc's own pyproject.toml, which is not read, because its requirements say nothing about an imported
file.
"""
REQUIREMENT = re.compile(
    r"""(?<![\w./-])trl(?:\[[\w,\s]*\])?["']?\s*(?:=\s*["'](?P<poetry>[\^~]?\d[\w.]*)["']"""
    r"""|(?P<bounds>(?:(?:===?|~=|>=|<=|<|>|!=|=)\s*v?\d[\w.*]*\s*,?\s*)+))"""
)
"""Matches a requirement such as `trl==0.12.0`, `trl>=0.9,<0.13`, or `trl = "^0.11.4"`."""
LOCKED = re.compile(r'name = "trl"\s+version = "(\d[\w.]*)"')
COMMANDS = re.compile(r"^from trl\.commands(?:\.cli_utils)? import ", re.MULTILINE)
"""Matches an import of a module of TRL that only versions up to 0.12 have."""
BOUND = re.compile(r"(===?|~=|>=|<=|<|>|=)\s*v?(\d+)(?:\.(\d+))?([.\d]*)")


def stated(text: str, file: str, overrides: Overrides) -> tuple[frozenset[str], str]:
    """Return a pair: the versions of TRL that a requirement allows, and the place of this requirement. A requirement in
    the script itself is preferred to one in a file near the script. If there is no requirement, the pair consists of
    all versions and "".
    """
    older = COMMANDS.search(text)
    if older is not None:
        return _allowed("<0.13"), _location(file, text, older)
    for name, content in _texts(text, file, overrides):
        for found in LOCKED.finditer(content):
            return _allowed(f"=={found[1]}"), _location(name, content, found)
        for found in REQUIREMENT.finditer(content):
            allowed = _allowed(_bounds(found))
            if allowed:
                return allowed, _location(name, content, found)
    return frozenset(numbers()), ""


def _location(name: str, content: str, found: re.Match[str]) -> str:
    return f"{name}:{content.count(chr(10), 0, found.start()) + 1}"


def _texts(text: str, file: str, overrides: Overrides) -> Iterator[tuple[str, str]]:
    yield file, text
    for name in FILES:
        data = overrides.read(name)
        if data is not None and OWN not in data:
            yield name, data.decode("utf-8-sig", "replace")
    yield from overrides.requirements()


def _bounds(found: re.Match[str]) -> str:
    """The bounds of a requirement, such as `>=0.9,<0.13`. Poetry's `^0.11.4` becomes `~=0.11.4`."""
    if found["poetry"] is None:
        return found["bounds"]
    version = found["poetry"].lstrip("^~")
    return f"~={version}" if found["poetry"][0] in "^~" else f"=={version}"


def _allowed(bounds: str) -> frozenset[str]:
    """The versions in versions.json that satisfy the bounds of a requirement, such as `>=0.18,<1`. A pinned release
    that is older or newer than all of them gives the oldest or newest version.
    """
    known = [tuple(map(int, one.split("."))) for one in numbers()]
    kept = set(known)
    for sign, major, minor, rest in BOUND.findall(bounds):
        at = (int(major), int(minor or 0))
        if sign in ("==", "===", "="):
            kept &= {max(known[0], min(at, known[-1]))} if minor else {one for one in known if one[0] == at[0]}
        elif sign == "~=":
            kept &= {one for one in known if one >= at and (one == at if rest.strip(".") else one[0] == at[0])}
        elif sign == "<":
            kept &= {one for one in known if one < at or (one == at and rest.strip(".0"))}
        elif sign == "<=":
            kept &= {one for one in known if one <= at}
        else:
            kept &= {one for one in known if one >= at}
    return frozenset(f"{major}.{minor}" for major, minor in kept)
