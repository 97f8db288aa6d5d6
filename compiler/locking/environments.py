"""Resolve the requirements of a bundle to exact packages with pip, without installing them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from tempfile import TemporaryDirectory

from xpc.compiler.files.pins import Environment
from xpc.compiler.resolve.lock_fields import PACKAGE

SECONDS = 3600
"""The time limit in seconds for resolving requirements. This is slow if the index has no separate metadata, because pip
then downloads the packages.
"""
MEMORY = 4 * 2**30
"""Maximum memory in bytes of pip. pip reads a page of an index completely, and a page may have no end."""
FILE = 8 * 2**30
"""Maximum size in bytes of a file that pip downloads."""
ANSWER = 64 * 2**20
"""Maximum size in bytes of pip's report and of its messages. The rest is not read."""
MESSAGE = 500
"""Maximum length of a message of pip that is shown."""
WORDS = ("install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--disable-pip-version-check",
         "--no-input")  # fmt: skip
PIP = """
import os, resource, runpy, signal, sys, threading

for kind, most in ((resource.RLIMIT_DATA, int(sys.argv.pop(1))), (resource.RLIMIT_FSIZE, int(sys.argv.pop(1)))):
    allowed = resource.getrlimit(kind)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(kind, (most, most))

def end_with_the_lock():
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)

threading.Thread(target=end_with_the_lock, daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__")
"""
"""A Python program that runs pip within the limits of memory and file size that its first two arguments state. It ends
when its standard input is closed, and so also if `xpc lock` is killed.
"""
BASE = "requirements.txt"
BUILT = "requirements-flash.txt"
"""The requirements file for flash-attn. flash-attn is built with the torch that is installed, so pip cannot resolve it
without torch. Only its own pin is recorded.
"""


class ResolveError(Exception):
    """Raised if requirements cannot be resolved, or pip fails. The message is one sentence."""


def requirements(files: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """The lines of each requirements file in a bundle. If the bundle is a sweep, the lines of its members are
    joined.
    """
    out: dict[str, tuple[str, ...]] = {}
    for name, data in sorted(files.items()):
        last = name.rpartition("/")[2]
        if last == BASE or (last.startswith("requirements-") and last.endswith(".txt")):
            lines = {line.strip() for line in data.decode().split("\n")}
            out[last] = tuple(sorted({*out.get(last, ()), *lines} - {""}))
    return out


def resolve(requested: Mapping[str, tuple[str, ...]], python: str) -> dict[str, Environment]:
    """Resolve each requirements file to packages. Raises ResolveError."""
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
        # These packages conflict with requirements.txt. A separate pip command installs them, so they are also resolved
        # separately.
        except ResolveError:
            out[name] = Environment(lines, _resolved(lines, python))
    return out


def _run(words: list[str], folder: str) -> tuple[int, str, str]:
    """Run pip, and return its exit status, its standard output and its standard error. If this process is stopped, pip
    is stopped, too. Raises OSError and subprocess.SubprocessError.
    """
    # pip writes into files, because an index decides how long its answers are
    paths = [os.path.join(folder, name) for name in ("report", "messages")]
    with open(paths[0], "wb") as report, open(paths[1], "wb") as messages, subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=report, stderr=messages, cwd=folder, process_group=0,
    ) as process:  # fmt: skip
        try:
            status = process.wait(SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    answers = []
    for path in paths:
        with open(path, "rb") as handle:
            answers.append(handle.read(ANSWER).decode(errors="replace"))
    return status, answers[0], answers[1]


def _error(complaints: str) -> str:
    """The last error that pip reports. For an exception in pip, the last line of its traceback."""
    lines = [line for line in complaints.splitlines() if line.strip()] or ["?"]
    errors = [line.partition("ERROR: ")[2] for line in lines if "ERROR: " in line]
    return errors[-1] if errors and errors[-1] != "Exception:" else lines[-1]


def _resolved(lines: tuple[str, ...], python: str) -> tuple[str, ...]:
    program = shutil.which(python)
    if program is None:
        raise ResolveError(f"there is no interpreter {python}; name one with --python")
    with TemporaryDirectory(prefix="xpc-") as folder:
        path = os.path.join(folder, "requirements.txt")
        with open(path, "w", encoding="utf-8") as handle:
            handle.writelines(f"{line}\n" for line in lines)
        try:
            status, report, complaints = _run([program, "-c", PIP, str(MEMORY), str(FILE), *WORDS, "-r", path], folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise ResolveError(f"{python} could not run pip: {type(error).__name__}") from error
    if status:
        raise ResolveError(f"pip cannot resolve the requirements: {_error(complaints)[:MESSAGE]}")
    try:
        found = [one["metadata"] for one in json.loads(report)["install"]]
        resolved = tuple(sorted(f"{one['name'].lower()}=={one['version']}" for one in found))
        wrong = next((one for one in resolved if PACKAGE.fullmatch(one) is None), None)
        if wrong is not None:  # an attacker may control the index, so its answer is checked
            raise ResolveError(f"pip's answer has a package `{wrong[:60]}`, which is not `NAME==VERSION`")
        return resolved
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResolveError(f"the pip of {python} gives no report (pip 22.2 or later is needed)") from error
