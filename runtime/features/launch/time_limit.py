"""A time limit for a call of code that may not end: a reward function, or a chat template."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TooSlow(BaseException):
    """Raised when a call exceeds its time limit. Not a subclass of Exception, which the called function might catch."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow in this thread after this many seconds.

    The signal is not SIGALRM, which math_verify uses for its own limits. Only the main thread can handle signals; other
    threads have no limit.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield
        return

    def handler(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, handler)
    timer = threading.Timer(seconds, signal.pthread_kill, (main.ident, signal.SIGVTALRM))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGVTALRM, before)
