"""A limit of processor time for one input: what hangs is found, and a busy machine is not mistaken for it.

Processor time also grows with load, where two processes share a core: the tests allow ten seconds,
and the fuzzer one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class TooLong(Exception):
    """The input took more processor time than it may."""


@contextmanager
def limited(seconds: float = 10.0) -> Iterator[None]:
    """Raise TooLong where the body takes more than so many seconds of this process' own processor time.

    XPC_CPU_LIMIT multiplies them: under coverage everything takes longer.
    """
    seconds *= float(os.environ.get("XPC_CPU_LIMIT", "1"))

    def expired(number: int, frame: object) -> None:
        raise TooLong(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
