"""`Forks`: an interpreter that has imported the libraries. It forks a process for each run, so runs start fast.

`xpc rehearse` uses the class `Forks`, too. `shared` returns a stack's interpreter, which all tests of this process
share.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from patience import HUNG
from stacks import environment, interpreter

from xpc.compiler.preview.rehearsal.forks import Forks as Forks

ENVIRON = environment(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
"""The environment variables of shared interpreters. They are copied when this process starts, before a test changes
any.
"""
_SHARED: dict[tuple[str, str], Forks] = {}


@cache
def notes() -> str:
    """The folder for trackio. All forked runs have the same folder, because trackio reads TRACKIO_DIR only when it is
    imported.
    """
    return tempfile.mkdtemp(prefix="trackio-")


def of_python(python: str, path: str = "") -> Forks:
    """The warm interpreter of this Python, with ``path`` as its PYTHONPATH. It is started when it is first needed. It
    then lives until `close`, because its imports take eight seconds of CPU time.
    """
    key = python, path
    if key not in _SHARED:
        more = {"PYTHONPATH": path} if path else {}
        _SHARED[key] = Forks(python, {**ENVIRON, "TRACKIO_DIR": notes(), **more})
    return _SHARED[key]


def shared(target: str) -> Forks:
    """The warm interpreter of a stack; all tests of this process share it. Skips the test if the stack is not
    installed.
    """
    return of_python(interpreter(target))


def printed(target: str, folder: Path, text: str, *words: str, given: str = "") -> str:
    """Run a Python program in the warm interpreter of a stack, and return what it prints. The program is written into
    ``folder``, and reads ``given`` as its standard input. If the program fails, the test fails and shows the program's
    errors.
    """
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    command = [shared(target).python, str(program), *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=HUNG)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@atexit.register
def close() -> None:
    """End the shared interpreters."""
    while _SHARED:
        _SHARED.popitem()[1].close()
    if notes.cache_info().currsize:
        shutil.rmtree(notes(), ignore_errors=True)
        notes.cache_clear()
