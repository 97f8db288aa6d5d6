"""The error class of the runtime, and functions that print a sentence for the person who started the run."""

import errno
import os
import shutil
import sys
import time
from collections.abc import Sequence

LONGEST = 2000
"""Printed lines are cut to this many characters; only lines that quote data are longer."""

REPORT_SECONDS = 5
"""Seconds that the other processes wait, so that process 0 can report an error that all of them have."""


class RunError(Exception):
    """The run cannot start or continue. ``str(error)`` is one sentence, or one line per finding of the preflight."""


def findings(found: Sequence[str]) -> RunError:
    """Combine findings into one error; a single finding becomes the message itself."""
    if len(found) == 1:
        return RunError(found[0])
    return RunError(f"{len(found)} things stop this run:\n" + "\n".join(f"  - {one}" for one in found))


def rank() -> int:
    """The global rank of this process; 0 if it was started without a launcher."""
    return int(os.environ.get("RANK", "0"))


def shown(text: str) -> str:
    """The text made safe for a terminal: escape sequences (which may come from a row or template) are spelled out, and
    long lines are cut.
    """
    if len(text) > LONGEST:
        text = "\n".join(one if len(one) <= LONGEST else one[:LONGEST] + "..." for one in text.split("\n"))
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else f"<U+{ord(one):04X}>" for one in text)


muted = False
"""True on a node other than node 0, which prints the messages for all nodes: this process then prints only errors."""


def say(sentence: str) -> None:
    """Print one line, on rank 0 only."""
    if rank() == 0 and not muted:
        put(f"[run] {shown(sentence)}")


printed = float(os.environ.get("XPC_PRINTED") or time.monotonic())
"""The time (`time.monotonic`) of the last printed line. Processes that are started later get it in XPC_PRINTED."""
_renewable = False
"""Whether the last line was printed with `renew`, so that the next such line replaces it on the terminal."""


def put(text: str, renew: bool = False) -> None:
    """Print a line. On a terminal, a line with ``renew`` replaces the last line that had ``renew``.

    A closed terminal, or a `tee` that Ctrl-C ended, raises no error, so that the run can still save.
    """
    global printed, _renewable
    renew = renew and sys.stdout.isatty()
    if renew:
        text = "\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1]
    elif _renewable:
        text = f"\n{text}"
    printed, _renewable = time.monotonic(), renew
    try:
        print(text, end="" if renew else "\n", flush=True)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(null, number)


def stop(error: RunError) -> int:
    """Print the error once (on rank 0, or on a process that is the only one to fail) and return the exit status."""
    if rank() == 0 or getattr(error, "local", False):
        print(f"error: {shown(str(error))}", file=sys.stderr, flush=True)
    else:  # wait: when one process exits, the launcher ends all others, also the one that reports
        time.sleep(REPORT_SECONDS)
    return 1


def first_line(error: BaseException) -> str:
    """The first line of a message, or the name of its class."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
