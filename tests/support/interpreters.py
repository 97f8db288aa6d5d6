"""Find the Python interpreter of each stack: `.venv` has the default stack, `.venv-0.18` has trl-0.18 (see Makefile).

An environment variable can name another interpreter, such as XPC_PYTHON_TRL_0_18 for trl-0.18.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest

from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import DEFAULT, STACKS, Stack, load

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OTHERS = tuple(name for name in STACKS if name != DEFAULT)
"""The stacks other than the default one; each has its own virtual environment."""


def stack_of(name: str) -> Stack:
    """The stack with this name. Fails if no stack has this name."""
    found = load(name)
    assert found is not None, name
    return found


def methods_of(stack: str) -> tuple[str, ...]:
    """The training methods that a stack supports, such as "sft"."""
    known = stack_of(stack)
    return tuple(name for name in METHODS if known.refused(name) is None)


def sharded(stack: str, strategy: str, method: str = "sft") -> str:
    """Return ``strategy``. If the compiler refuses it because the stack trains wrongly with it (XP488, XP127), return
    `zero1`.
    """
    known = stack_of(stack)
    wrong = {
        "zero2": not known.facts.zero2_accumulates,
        "zero3": method == "reward" and not known.facts.zero3_draws_scores,
    }
    return "zero1" if wrong.get(strategy) else strategy


def python_of(stack: str) -> str | None:
    """The path of an interpreter with the stack's version of TRL; None if this machine has no such interpreter."""
    known, python = load(stack), _named(stack)
    assert known is not None
    return python if python is not None and _trl(python) == known.pins["trl"] else None


def interpreter(stack: str) -> str:
    """The path of the stack's interpreter. Skips the calling test if the stack has no interpreter."""
    python = python_of(stack)
    if python is None:
        pytest.skip(f"no environment has the versions of {stack}; `make {environment(stack)}/ready` installs them")
    return python


def with_trackers(stack: str) -> str:
    """An interpreter that has the packages of the stack, and also MLflow, SwanLab and ClearML. Skips the test if there
    is no such interpreter.
    """
    python = os.path.join(ROOT, ".venv-trackers", stack, "bin", "python")
    if not os.path.exists(os.path.join(ROOT, ".venv-trackers", "ready")):
        pytest.skip("`make .venv-trackers/ready` installs MLflow, SwanLab and ClearML")
    return python


def installed() -> tuple[str, ...]:
    """The stacks whose interpreter is installed, the default one first."""
    return tuple(name for name in (DEFAULT, *OTHERS) if python_of(name) is not None)


def environment(stack: str) -> str:
    """The folder of the stack's virtual environment in the Makefile: ".venv-0.18" for trl-0.18."""
    return ".venv-" + stack.removeprefix("trl-")


def _named(stack: str) -> str | None:
    reported = os.environ.get("XPC_PYTHON_" + stack.upper().replace("-", "_").replace(".", "_"))
    if reported or stack == DEFAULT:
        return reported or (sys.executable if find_spec("trl") else None)
    python = os.path.join(ROOT, environment(stack), "bin", "python")
    return python if os.path.exists(python) else None


@cache
def _trl(python: str) -> str:
    code = "import importlib.metadata as m; print(m.version('trl'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
