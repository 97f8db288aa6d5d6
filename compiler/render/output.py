"""The only module that prints. Text from others, such as a spec, reaches a terminal or a log only through `show`.

A test (tests/security/test_security_prints.py) finds every print in other modules, and lists the modules that may use
the other functions.
"""

from __future__ import annotations

import os
import sys

from xpc.compiler.render.visible import in_json, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def show(text: str, to: TextIO | None = None) -> None:
    """Print lines of text that may contain text from others: names of files, values, lines of a spec."""
    if text:
        lines = "\n".join(map(visible, text.removesuffix("\n").split("\n")))
        (to or sys.stdout).write(lines + "\n")


def colored() -> bool:
    """Whether standard output is a terminal that wants colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def show_json(text: str) -> None:
    """Print JSON. Its strings escape everything that could harm a terminal."""
    sys.stdout.write(in_json(text))


def show_rendered(text: str, to: TextIO | None = None) -> None:
    """Print what `render` made. It is neutralised already, and contains our colours and commands."""
    (to or sys.stdout).write(text)


def show_exact(text: str) -> None:
    """Print a text that a program reads byte for byte, such as a formatted spec or a completion script."""
    sys.stdout.write(text)
