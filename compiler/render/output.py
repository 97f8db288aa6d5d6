"""The only module that prints. Text that others have written, such as a spec, is escaped by `show` before it gets to a
terminal or a log.

A test (tests/security/test_security_prints.py) finds every print in another module. The test also lists the modules
that may call the other functions of this module.
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
    """Whether to print colours. True if standard output is a terminal and no environment variable turns colours off
    (`NO_COLOR`, `TERM=dumb`).
    """
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def show_json(text: str) -> None:
    """Print JSON. Control characters, which could affect a terminal, are already escaped in JSON. Texts that GitHub's
    runner would execute as commands are escaped here.
    """
    sys.stdout.write(in_json(text))


def show_rendered(text: str, to: TextIO | None = None) -> None:
    """Print the result of `render` unchanged. `render` has already escaped the user's texts, and has added colours and
    commands for GitHub's runner, which would be damaged if the text were escaped again.
    """
    (to or sys.stdout).write(text)


def show_exact(text: str) -> None:
    """Print a text unchanged, because a program reads it, such as a formatted spec or a completion script."""
    sys.stdout.write(text)
