"""The only module that prints. Text that others have written, such as a spec, is escaped by `show` before it gets to a
terminal or a log.

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
    """Print lines. They are escaped, because they may contain text that others have written: names of files, values, or
    lines of a spec.
    """
    if text:
        lines = "\n".join(map(visible, text.removesuffix("\n").split("\n")))
        (to or sys.stdout).write(lines + "\n")


def colored() -> bool:
    """Whether to print colours: only if standard output is a terminal, and the environment does not turn colours off
    (`NO_COLOR`, `TERM=dumb`).
    """
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def show_json(text: str) -> None:
    """Print JSON. JSON already escapes control characters, which could affect a terminal. In addition, texts that
    GitHub's runner would execute as commands are escaped.
    """
    sys.stdout.write(in_json(text))


def show_rendered(text: str, to: TextIO | None = None) -> None:
    """Print the result of `render` unchanged. `render` has already escaped every text of the user. Escaping the result
    again would damage the colours and the commands for GitHub's runner that `render` adds.
    """
    (to or sys.stdout).write(text)


def show_exact(text: str) -> None:
    """Print a text unchanged, because a program reads it, such as a formatted spec or a completion script."""
    sys.stdout.write(text)
