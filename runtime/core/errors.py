"""The error class of the runtime, and functions that print a sentence for the person who started the run."""

import errno
import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

LONGEST = 2000
"""Longer lines are cut to this many characters before they are printed. Only lines that quote data get so long."""

REPORT_SECONDS = 5
"""If all processes have an error, process 0 prints its error; all others wait this many seconds, then exit."""


class RunError(Exception):
    """The reason why the run cannot start or continue. ``str(error)`` is one sentence, or a line for each finding."""

    def __init__(self, why: str, local: bool = False) -> None:
        super().__init__(why)
        self.local = local
        """True if this may be the only process with the error. This process must then print it."""


def findings(found: Sequence[str]) -> RunError:
    """Combine findings into one error; a single finding becomes the message itself."""
    if len(found) == 1:
        return RunError(found[0])
    return RunError(f"{len(found)} things stop this run:\n" + "\n".join(f"  - {one}" for one in found))


def rank() -> int:
    """The global rank of this process; 0 if it was started without a launcher."""
    return int(os.environ.get("RANK", "0"))


def shown(text: str) -> str:
    """Make a text safe for a terminal: spell out escape sequences (a row or template may have some), cut long lines."""
    if len(text) > LONGEST:
        text = "\n".join(one if len(one) <= LONGEST else one[:LONGEST] + "..." for one in text.split("\n"))
    return "".join(one if one.isprintable() or one == "\n" else f"<U+{ord(one):04X}>" for one in text)


muted = False
"""Whether this process prints only errors. True on every node except node 0, which prints messages for all nodes."""


def say(sentence: str) -> None:
    """Print one line, on rank 0 only."""
    if rank() == 0 and not muted:
        put(f"[run] {shown(sentence)}")


printed = float(os.environ.get("XPC_PRINTED") or time.monotonic())
"""When the last line was printed (`time.monotonic`). A child process gets this time in the variable XPC_PRINTED."""
_renewable = False
"""Whether the last line was printed with `renew`. If so, on a terminal, the next line with `renew` replaces it."""
stopping = False
"""Whether the run was asked to stop. launcher.py then has already written its own message over the last progress
line.
"""


def put(text: str, renew: bool = False, file: TextIO | None = None) -> None:
    """Print a line to ``file``, or to standard output. On a terminal, a line with ``renew`` replaces the last line with
    ``renew``. No error is raised if the terminal is closed or Ctrl-C has ended a `tee`, so that the run can still save.
    """
    global printed, _renewable
    renew = renew and sys.stdout.isatty()
    if renew:
        text = "\r\x1b[K" + _fitting(text, shutil.get_terminal_size().columns - 1)
    elif _renewable:
        text = f"\r\x1b[K{text}" if stopping else f"\n{text}"
    printed, _renewable = time.monotonic(), renew
    try:
        print(text, end="" if renew else "\n", file=file, flush=True)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(null, number)


def _fitting(text: str, width: int) -> str:
    """A step's line, cut to a width: words between the loss and the last two (tokens/s, time left) are cut first."""
    words = text.split("  ")
    while len("  ".join(words)) > width and len(words) > 4:
        del words[-3]
    return "  ".join(words)[:width]


def stop(error: RunError) -> int:
    """Print the error (on process 0, or on any process if it is ``local``), and return the exit status."""
    if rank() == 0 or error.local:
        put(f"error: {shown(str(error))}", file=sys.stderr)
    else:  # the launcher ends all processes when one exits, so this process first lets process 0 print
        time.sleep(REPORT_SECONDS)
    return 1


def first_line(error: BaseException) -> str:
    """The first line of an error's message; without a message, the name of the error's class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
