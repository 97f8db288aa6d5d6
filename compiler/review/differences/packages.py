"""The versions of packages that a bundle installs, as its requirements files, constraints and lock state them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from xpc.compiler.files import bounded_toml
from xpc.compiler.review.differences.change import Change

EXACT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([A-Za-z0-9][A-Za-z0-9.+!_-]*)")
LISTS = re.compile(r"requirements[^/]*\.txt|constraints\.txt|files/[^/]*\.lock")
"""Matches the names of files that list packages. The copy of a lock in `files/` has a digest in its name, such as
`files/requirements-1a2b3c4d.lock`.
"""
CODING = re.compile(r"#.*coding[:=]")
"""Matches a comment that states an encoding, such as `# coding: utf-16`. If one of a file's first two lines is
such a comment, pip decodes the file with this encoding, and text that looks like a comment may turn into packages. So
this comment is compared like a package.
"""
LOCK = "the lock"
ABSENT = "absent"
SHOWN = 3
"""Maximum number of packages that the first line of a comparison names."""
PINS = ("model", "dataset", "kernel")


def installs(name: str) -> bool:
    """Whether a file of a bundle lists packages to install, such as `requirements.txt`."""
    return LISTS.fullmatch(name) is not None


def package_changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> tuple[Change, ...]:
    """The packages with different versions. A line that is not `NAME==VERSION` is compared as text."""
    found: dict[tuple[str, str, str], list[str]] = {}
    before, after = (
        {LOCK if name.endswith(".lock") else name: data for name, data in files.items()} for files in (before, after)
    )
    for file in sorted({*before, *after}):
        was, now = (_entries(file, files.get(file)) for files in (before, after))
        for name in (*was, *(one for one in now if one not in was)):
            if was.get(name) != now.get(name):
                found.setdefault((name, was.get(name, ABSENT), now.get(name, ABSENT)), []).append(file)
    return tuple(Change(*key, ", ".join(files)) for key, files in found.items())


def _entries(file: str, data: bytes | None) -> dict[str, str]:
    """The packages in a file with their versions. Any other line, such as `--index-url URL`, becomes an entry with a
    numbered value (`option 2`), because the order of such lines may count: of several lines `--index-url`, the last one
    applies.
    """
    if data is None:
        return {}
    if file == LOCK:
        return dict(_locked(data))
    out: dict[str, dict[str, None]] = {}
    others = 0
    decoded = b"\0" in data  # pip reads a file that begins with a byte order mark as UTF-16 or UTF-32
    for number, line in enumerate(data.decode("utf-8", "backslashreplace").splitlines()):
        words = line.strip()
        comment = words.startswith("#") and not decoded and not (number < 2 and CODING.match(words))
        if not words or comment:
            continue
        exact = EXACT.fullmatch(words.partition(" #")[0].strip())
        if exact is None or line.endswith("\\"):  # like pip, join a line that ends with a backslash with the next line
            others += 1
            out.setdefault(f"line `{words}`", {})[f"option {others}"] = None
        else:
            name = re.sub("[-_.]+", "-", exact[1]).lower()
            out.setdefault(name, {})[exact[2]] = None
    return {name: " and ".join(versions) for name, versions in out.items()}


def _locked(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the pins of a lock: versions of packages, and commits of models, datasets and kernels. For a damaged lock,
    yield its complete text.
    """
    try:
        table = bounded_toml.loads(data.decode())
        for environment, one in table.get("environment", {}).items():
            lines = "\n".join(map(str, one["resolved"])).encode()
            yield from ((_in(name, environment), version) for name, version in _entries("", lines).items())
        for kind in PINS:
            for one in table.get(kind, ()):
                part = f":{one['part']}" if one.get("part") else ""
                yield f"{kind} {one['id']}{part}", str(one["revision"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield LOCK, data.decode("utf-8", "backslashreplace")


def _in(name: str, environment: str) -> str:
    """The name of a package, for messages. If the package belongs to another environment than the training environment,
    ` for FILE` is appended.
    """
    return name if environment == "requirements.txt" else f"{name} for {environment}"


def summary(found: tuple[Change, ...]) -> str:
    """A phrase for the first line of a comparison: `torch 2.13.0 -> 2.4.0 and 3 more packages`."""
    named = ", ".join(f"{one.name} {one.before} -> {one.after}" for one in found[:SHOWN])
    more = len(found) - SHOWN
    return named if more <= 0 else f"{named} and {more} more package{'s' if more > 1 else ''}"
