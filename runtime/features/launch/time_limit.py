"""A time limit for a call of code that may not end: a reward function, or a chat template."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TooSlow(BaseException):
    """Raised when a call exceeds its time limit. It is a BaseException, because the called function may catch every
    Exception.
    """


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlow in this thread after this many seconds.

    It does not use SIGALRM, because math_verify needs this signal for its own limits. Only the main thread can handle
    signals, so calls in other threads have no limit.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield
        return

    ended = False

    def handler(*_: object) -> None:
        if not ended:
            raise TooSlow

    before = signal.signal(signal.SIGVTALRM, handler)
    timer = threading.Timer(seconds, signal.pthread_kill, (main.ident, signal.SIGVTALRM))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        ended = True
        timer.cancel()
        timer.join()  # wait for a signal that the timer may be sending, before the handler is replaced
        signal.signal(signal.SIGVTALRM, before)
