"""Limit the CPU time of a call, to find inputs for which the call hangs. On a busy machine, a call takes much more
wall-clock time, but only slightly more CPU time.

It needs more CPU time if two processes share a core. Therefore the tests allow ten seconds, and the fuzzer allows two.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class TooLong(Exception):
    """Raised if a call took more CPU time than its limit allows."""


@contextmanager
def limited(seconds: float = 10.0) -> Iterator[None]:
    """A context that raises TooLong if its body takes more than ``seconds`` of this process's CPU time.

    The limit is multiplied by the number in the variable XPC_CPU_LIMIT. It is set while coverage is measured, because
    the measurement makes every call slower.
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
