"""Check every field of a lock file: packages (`NAME==VERSION`), full commits, digests and counts.

The checks are strict because a pull request from a stranger may contain a lock file, and pip reads a part of it as
`constraints.txt`. Each function raises ValueError with a sentence for an invalid value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xpc.compiler.files.secrets import pinned

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSION = r"[0-9A-Za-z]+(?:[.!+_-][0-9A-Za-z]+)*"
PACKAGE = re.compile(rf"({NAME})(?:\[{NAME}(?:,{NAME})*\])?==({VERSION})")
"""Matches `NAME==VERSION`, where the name may have extras, as in requirements files and pip's output."""
REPOSITORY = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)?", re.ASCII)
BRANCH = re.compile(r"(?!.*\.\.)[\w][^\s\\?*\[\]~^:#]*", re.ASCII)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
REQUIREMENTS = re.compile(r"requirements(?:-[a-z0-9]+)?\.txt")
LARGEST = 2**63 - 1


def known(table: Mapping[str, Any], *keys: str) -> None:
    """Check that a TOML table has only keys in `keys`. Raises ValueError."""
    other = [key for key in table if key not in keys]
    if other:
        raise ValueError(f"has an unknown entry `{other[0][:40]}`")


def text(table: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """The value of a key, which must be a printable string. A missing key gives `default`; without a default, a missing
    key is an error.
    """
    value = table.get(key, default)
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"has a `{key}` that is not a text of one line")
    return value


def matching(table: Mapping[str, Any], key: str, form: re.Pattern[str], what: str, default: str | None = None) -> str:
    """The value of a key, which must match the pattern `form`; `default` if the key is missing. `what` describes the
    form in the error message, such as `a digest`.
    """
    value = text(table, key, default)
    if value != default and form.fullmatch(value) is None:
        raise ValueError(f"has {key} = `{value[:60]}`, which is not {what}")
    return value


def commit(table: Mapping[str, Any]) -> str:
    """The value of `revision`, which must be a full commit hash. If `requested`, the revision in the spec, is a commit
    hash, the two must be equal.
    """
    value = text(table, "revision")
    if not pinned(value):
        raise ValueError(f"has the revision `{value[:60]}`, which is not a commit of 40 hexadecimal digits")
    if pinned(text(table, "asked", "")) and table["asked"] != value:
        raise ValueError(f"pins the requested commit {table['asked'][:12]} to another commit, {value[:12]}")
    return value


def digests(table: Mapping[str, Any]) -> dict[str, str]:
    """A table that maps names of files to their digests."""
    return {key: matching(table, key, DIGEST, "`sha256:` and 64 digits") for key in _names(table)}


def counts(table: Mapping[str, Any]) -> dict[str, int]:
    """A table that maps names of files or splits to numbers of rows."""
    for key in _names(table):
        if type(table[key]) is not int or not 0 <= table[key] <= LARGEST:
            raise ValueError(f"has a number of rows for `{key[:60]}` that is not a whole number")
    return dict(table)


def _names(table: Mapping[str, Any]) -> list[str]:
    """The keys of a table, which must be printable names."""
    if not isinstance(table, dict) or not all(key.isprintable() for key in table):
        raise ValueError("has a name that is not a text of one line")
    return list(table)


def texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The value of a key, which must be a list of printable strings. A missing key gives an empty tuple."""
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one.isprintable() for one in value):
        raise ValueError(f"has `{key}` that is not a list of texts of one line")
    return tuple(value)


def config(table: Mapping[str, Any]) -> str:
    """The text of a config.json, which must be a JSON object; empty if it is missing."""
    value = table.get("config", "")
    if not isinstance(value, str) or (value and not isinstance(json.loads(value), dict)):
        raise ValueError("has a `config` that is not a JSON object")
    return value


def packages(title: str, table: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requested packages and all resolved packages. No package may be listed twice. A requested package must
    have the same version in both lists.
    """
    if REQUIREMENTS.fullmatch(title) is None:
        raise ValueError(f"has packages of `{title[:60]}`, which is not a requirements file")
    known(table, "asked", "resolved")
    requested, resolved = texts(table, "asked"), texts(table, "resolved")
    there = _versions(title, resolved)
    for name, version in _versions(title, requested).items():
        if there.get(name, "").partition("+")[0] != version.partition("+")[0]:
            raise ValueError(f"resolves {name}=={version} of {title} to {there.get(name) or 'nothing'}")
    return requested, resolved


def _versions(title: str, lines: Sequence[str]) -> dict[str, str]:
    """Map the normalized name of each package to its version."""
    out: dict[str, str] = {}
    for line in lines:
        found = PACKAGE.fullmatch(line)
        if found is None:
            raise ValueError(f"has `{line[:60]}` among the packages of {title}, which is not `NAME==VERSION`")
        name = re.sub(r"[-_.]+", "-", found[1]).lower()
        if name in out:
            raise ValueError(f"has {name} twice among the packages of {title}")
        out[name] = found[2]
    return out
