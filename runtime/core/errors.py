"""The one error of the runtime: a sentence for the person who started the run."""

import os
import sys
import time
from collections.abc import Sequence

LONGEST = 2000
"""A longer line of a message quotes somebody's data, letters."""

REPORT_SECONDS = 5
"""Seconds that the other processes leave process 0 to tell of an error that all have."""


class RunError(Exception):
    """The run cannot start or go on. ``str(error)`` is one sentence, or one line for each finding of the preflight."""


def findings(found: Sequence[str]) -> RunError:
    """One error out of everything that was found wrong; a single finding stands alone."""
    if len(found) == 1:
        return RunError(found[0])
    return RunError(f"{len(found)} things stop this run:\n" + "\n".join(f"  - {one}" for one in found))


def rank() -> int:
    """This process's number among all, 0 when it was started alone."""
    return int(os.environ.get("RANK", "0"))


def shown(text: str) -> str:
    """The text as a terminal may get it: escape sequences (of a row, a template) spelled out, no line of a megabyte."""
    if len(text) > LONGEST:
        text = "\n".join(one if len(one) <= LONGEST else one[:LONGEST] + "..." for one in text.split("\n"))
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else f"<U+{ord(one):04X}>" for one in text)


muted = False
"""Whether the talking is left to another node: nothing more is said here, errors apart."""


def say(sentence: str) -> None:
    """Prints one line, on rank 0 only."""
    if rank() == 0 and not muted:
        print(f"[run] {shown(sentence)}", flush=True)


def stop(error: RunError) -> int:
    """Tells of the error once (rank 0, or the first process of a node that fails alone) and gives the exit status."""
    if rank() == 0 or getattr(error, "local", False):
        print(f"error: {shown(str(error))}", file=sys.stderr, flush=True)
    else:  # the launcher ends all at the first that fails: the one that tells must be that
        time.sleep(REPORT_SECONDS)
    return 1


def first_line(error: BaseException) -> str:
    """The first line of a message, or the name of its class."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
