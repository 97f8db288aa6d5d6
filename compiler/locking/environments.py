"""Resolve the requirements of a bundle to exact packages with pip, without installing them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from time import monotonic

from xpc.compiler.files.pins import Environment
from xpc.compiler.resolve.lock_fields import PACKAGE

SECONDS = 3600
"""The time limit in seconds for resolving all requirements of a bundle. It is long, because pip has to download
complete packages if the index has no separate metadata.
"""
PACKAGES = 500
"""The largest number of packages that pip may read for a requirements file. A stack with vLLM needs about 200. Without
a limit, a hostile index could name new packages without end.
"""
POLL = 0.5
"""While pip runs, its output is read once in this many seconds."""
MEMORY = 4 * 2**30
"""Maximum memory in bytes that pip may use. pip reads each page of an index completely, and a hostile page may be
endless.
"""
FILE = 8 * 2**30
"""Maximum size in bytes of a file that pip downloads."""
ANSWER = 64 * 2**20
"""Maximum size in bytes of each of pip's three outputs: the report, the messages, and the list of packages that pip has
begun to read. Anything beyond this size is not read.
"""
MESSAGE = 500
"""An error shows at most this many characters of pip's message."""
WORDS = ("--dry-run", "--ignore-installed", "--progress-bar", "off", "--no-color",
         "--disable-pip-version-check", "--no-input", "--report")  # fmt: skip
READS = re.compile(rb"^ *Collecting ([A-Za-z0-9._-]+)", re.MULTILINE)
"""Matches a line that pip prints when it begins to read a package. The group is the package's name."""
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
"""A Python program that runs pip. Its first two arguments are the limits of memory and of file size. The program ends
when its standard input is closed, which also happens if `xpc lock` is killed.
"""
BASE = "requirements.txt"
BUILT = "requirements-flash.txt"
"""The name of the requirements file for flash-attn. pip cannot resolve this file without the other packages, because a
build of flash-attn uses the installed torch. The lock records only the pin of flash-attn itself.
"""


class ResolveError(Exception):
    """Raised if requirements cannot be resolved, or pip fails. The message is one sentence."""


def requirements(files: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """Map the name of each requirements file in a bundle to its lines. If the bundle is a sweep, the lines of its
    members are joined.
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
    base, until = requested[BASE], monotonic() + SECONDS
    out = {BASE: Environment(base, _resolved(base, python, until))}
    for name, lines in requested.items():
        if name == BASE:
            continue
        if name == BUILT:
            out[name] = Environment(lines, lines)
            continue
        try:
            out[name] = Environment(lines, _resolved((*base, *lines), python, until))
        # The packages of this requirements file conflict with requirements.txt. Because a separate pip command installs
        # them, they are also resolved separately.
        except ResolveError:
            out[name] = Environment(lines, _resolved(lines, python, until))
    return out


def _run(words: list[str], folder: str, until: float) -> tuple[int, str, str]:
    """Run pip. Returns its exit status, its report and its standard error. If this process is stopped, it kills pip.
    `until` is the time limit, as a time of `monotonic`. Raises ResolveError, OSError and subprocess.SubprocessError.
    """
    # the index decides how much pip prints: a pipe would have to be read completely, but a file is read only up to a
    # limit
    report, progress, messages = (os.path.join(folder, name) for name in ("report", "progress", "messages"))
    with open(progress, "wb") as out, open(messages, "wb") as err, subprocess.Popen(
        [*words, report], stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=folder, process_group=0,
    ) as process:  # fmt: skip
        try:
            status = None
            while status is None:
                try:
                    status = process.wait(POLL)
                except subprocess.TimeoutExpired:
                    _check_progress(_start(progress), until)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return status, _start(report).decode(errors="replace"), _start(messages).decode(errors="replace")


def _start(path: str) -> bytes:
    """The first `ANSWER` bytes of a file, or nothing if pip has not written it."""
    try:
        with open(path, "rb") as handle:
            return handle.read(ANSWER)
    except FileNotFoundError:
        return b""


def _check_progress(printed: bytes, until: float) -> None:
    """Raise ResolveError if pip reads too many packages, or has no time left."""
    names = READS.findall(printed)
    last = f"; the last one is {names[-1][:60].decode()}" if names else ""
    if len(set(names)) > PACKAGES or len(printed) >= ANSWER:
        raise ResolveError(f"pip reads more than {PACKAGES:,} packages, so it was stopped{last}")
    if monotonic() > until:
        read = f"{len(set(names)):,} packages read" if names else "no package read"
        raise ResolveError(f"pip did not end within {SECONDS // 60} minutes, so it was stopped, with {read}{last}")


def _error(complaints: str) -> str:
    """The last error that pip reports, or the last line of the traceback if pip itself failed with an exception."""
    lines = [line for line in complaints.splitlines() if line.strip()] or ["?"]
    errors = [line.partition("ERROR: ")[2] for line in lines if "ERROR: " in line]
    return errors[-1] if errors and errors[-1] != "Exception:" else lines[-1]


def _resolved(lines: tuple[str, ...], python: str, until: float) -> tuple[str, ...]:
    program = shutil.which(python)
    if program is None:
        raise ResolveError(f"there is no interpreter {python}; name one with --python")
    with TemporaryDirectory(prefix="xpc-") as folder:
        path = os.path.join(folder, "requirements.txt")
        with open(path, "w", encoding="utf-8") as handle:
            handle.writelines(f"{line}\n" for line in lines)
        try:
            words = [program, "-c", PIP, str(MEMORY), str(FILE), "install", "-r", path, *WORDS]
            status, report, complaints = _run(words, folder, until)
        except (OSError, subprocess.SubprocessError) as error:
            raise ResolveError(f"{python} could not run pip: {type(error).__name__}") from error
    if status:
        raise ResolveError(f"pip cannot resolve the requirements: {_error(complaints)[:MESSAGE]}")
    try:
        found = [one["metadata"] for one in json.loads(report)["install"]]
        resolved = tuple(sorted(f"{one['name'].lower()}=={one['version']}" for one in found))
        wrong = next((one for one in resolved if PACKAGE.fullmatch(one) is None), None)
        if wrong is not None:  # an attacker may control the index, so the answer is checked
            raise ResolveError(f"pip's answer has a package `{wrong[:60]}`, which is not `NAME==VERSION`")
        return resolved
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResolveError(f"the pip of {python} gives no report (pip 22.2 or later is needed)") from error
