"""Print a line when a phase without logged steps, such as loading the model, takes long. Standard library only."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from . import errors

FIRST, LONGEST = 10.0, 60.0
"""Seconds between lines about a phase: always FIRST on a terminal; in a log, FIRST, then doubled up to LONGEST."""


class Phase:
    """The current phase. ``name`` is "" while steps are logged; ``total`` is the amount of work; 0 if it is unknown."""

    name = ""
    started = 0.0
    done = total = 0
    bar: Callable[[], tuple[str, int, int, float] | None] = staticmethod(lambda: None)
    """A function that returns a library's progress: description, count, total, seconds. Set after the imports."""
    ended: Callable[[str], None] = staticmethod(lambda name: None)
    """A function that is called at the end of each phase, with the phase's name."""


def now(name: str) -> None:
    """Begin a phase, such as "loading the model". `now("")` only ends the previous phase."""
    Phase.ended(Phase.name)
    Phase.name, Phase.started, Phase.done, Phase.total = name, time.monotonic(), 0, 0


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A context manager for a phase inside another: after ``with phase("evaluating"):``, the outer phase continues."""
    before = Phase.name
    now(name)
    try:
        yield
    finally:
        now(before)


def watch(idle: Callable[[], bool] = lambda: True) -> None:
    """On process 0, start a thread that prints lines about long phases, but only while ``idle()`` returns true."""
    if errors.rank() == 0:
        threading.Thread(target=_watch, args=(idle,), name="progress", daemon=True).start()


def _watch(idle: Callable[[], bool], started: float = 0.0, wait: float = FIRST) -> None:
    while True:
        time.sleep(0.5)
        started, wait = Phase.started, wait if Phase.started == started else FIRST
        silent = time.monotonic() - errors.printed
        if Phase.name and silent >= wait and idle() and not (sys.stderr.isatty() and Phase.bar()):
            errors.say(line(time.monotonic() - started))
            wait = FIRST if sys.stderr.isatty() else min(2 * wait, LONGEST)
        os.environ["XPC_PRINTED"] = str(errors.printed)  # tells child processes when the last line was printed


def line(seconds: float) -> str:
    """The line about the current phase, which began ``seconds`` ago."""
    what, done, total, spent = Phase.name, Phase.done, Phase.total, seconds
    if bar := Phase.bar():
        words, done, total, spent = bar
        what += f" ({words})" if words else ""
    left = f", left {timedelta(seconds=round(spent / done * (total - done)))}" if 0 < done <= total else ""
    count = f": {done:,} of {total:,}" if total else ""
    return f"{what}{count}" + (f", {timedelta(seconds=round(seconds))} so far{left}" if round(seconds) else "")
