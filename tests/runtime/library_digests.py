"""Digests of the library functions that library_internals/ replaces, overrides or depends on.

If a function of a library has changed, somebody must check whether our module still works with it. Afterwards, `python
tests/runtime/library_digests.py STACK PYTHON` writes the new digests of the stack.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "library_digests.toml")
NONE = "none"
"""The entry in place of a digest for a stack whose libraries lack the function."""


def table() -> dict[str, dict[str, str]]:
    """For each library function: the module of library_internals that depends on it, and the function's digest on each
    stack.
    """
    with open(TABLE, "rb") as handle:
        return tomllib.load(handle)


def digests(python: str) -> dict[str, str]:
    """The digests of the functions in an interpreter's libraries."""
    names = json.dumps(list(table()))
    quiet = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [python, os.path.join(HERE, "library_sources.py")], input=names, env={**os.environ, **quiet},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: digest or NONE for name, digest in found.items()}


def write(stack: str, found: dict[str, str]) -> None:
    """Write the digests of a stack into the table."""
    lines = []
    for name, kept in table().items():
        lines += [f'["{name}"]', *(f'"{key}" = "{value}"' for key, value in {**kept, stack: found[name]}.items()), ""]
    with open(TABLE, "w", encoding="utf-8") as handle:
        handle.write("\n".join(lines))


if __name__ == "__main__":
    write(sys.argv[1], digests(sys.argv[2]))
