"""Resolve the requirements of a bundle to packages with pip, without installing them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from tempfile import TemporaryDirectory

from xpc.compiler.files.pins import Environment

SECONDS = 3600
"""Timeout of a resolution. It can be slow: without separate metadata in the index, pip downloads the packages."""
BASE = "requirements.txt"
BUILT = "requirements-flash.txt"
"""Built against the installed torch, which pip needs to know the dependencies: only its own pin is recorded."""


class ResolveError(Exception):
    """The requirements do not resolve, or pip failed; the message is one sentence."""


def requirements(files: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """The lines of each requirements file of a bundle; for a sweep, those of all members together."""
    out: dict[str, tuple[str, ...]] = {}
    for name, data in sorted(files.items()):
        last = name.rpartition("/")[2]
        if last == BASE or (last.startswith("requirements-") and last.endswith(".txt")):
            lines = {line.strip() for line in data.decode().split("\n")}
            out[last] = tuple(sorted({*out.get(last, ()), *lines} - {""}))
    return out


def resolve(requested: Mapping[str, tuple[str, ...]], python: str) -> dict[str, Environment]:
    """Each requirements file with its resolved packages. Raises ResolveError."""
    base = requested[BASE]
    out = {BASE: Environment(base, _resolved(base, python))}
    for name, lines in requested.items():
        if name == BASE:
            continue
        if name == BUILT:
            out[name] = Environment(lines, lines)
            continue
        try:
            out[name] = Environment(lines, _resolved((*base, *lines), python))
        except ResolveError:  # it conflicts with the base pins and is installed in a separate step
            out[name] = Environment(lines, _resolved(lines, python))
    return out


def _resolved(lines: tuple[str, ...], python: str) -> tuple[str, ...]:
    program = shutil.which(python)
    if program is None:
        raise ResolveError(f"there is no interpreter {python}; name one with --python")
    with TemporaryDirectory(prefix="xpc-") as folder:
        path = os.path.join(folder, "requirements.txt")
        with open(path, "w", encoding="utf-8") as handle:
            handle.writelines(f"{line}\n" for line in lines)
        words = [
            program,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--report",
            "-",
            "-r",
            path,
        ]
        try:
            done = subprocess.run(
                [*words, "--disable-pip-version-check", "--no-input"], capture_output=True, text=True, timeout=SECONDS,
                check=False, cwd=folder,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise ResolveError(f"{python} could not run pip: {type(error).__name__}") from error
    if done.returncode:
        errors = [line.partition("ERROR: ")[2] for line in done.stderr.splitlines() if "ERROR: " in line]
        raise ResolveError(f"pip cannot resolve the requirements: {(errors or done.stderr.splitlines() or ['?'])[-1]}")
    try:
        found = [one["metadata"] for one in json.loads(done.stdout)["install"]]
        return tuple(sorted(f"{one['name'].lower()}=={one['version']}" for one in found))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResolveError(f"the pip of {python} gives no report (pip 22.2 or later is needed)") from error
