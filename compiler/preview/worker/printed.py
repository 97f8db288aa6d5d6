"""Report the progress while many rows are prepared, and collect what the runtime prints about these rows."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

OF_RUN = "[run] "
"""The beginning of each line that the runtime prints."""
COMPARED = "for parts that the chat template drops"
"""The end of a line in which a run reports that it compared rows with their rendered text. A preview does not show this
line.
"""
FIRST = 5.0
"""Preparing a row is reported after this many seconds."""
Say = Callable[[str], None]
"""A function that prints a line."""


@contextmanager
def collected(messages: list[str]) -> Iterator[None]:
    """A context that collects what the runtime prints about the rows, for example how many rows it leaves out.

    The sentence on how many rows were compared with their rendered text is dropped, because a scan compares no rows.
    """
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        lines = (line.removeprefix(OF_RUN) for line in printed.getvalue().splitlines() if line.startswith(OF_RUN))
        messages += [line for line in lines if not line.endswith(COMPARED)]


@contextmanager
def waiting(say: Say, what: str, first: float = FIRST) -> Iterator[None]:
    """A context that prints `what` and the seconds so far if the context takes more than `first` seconds, and then at
    doubling intervals up to a minute.
    """
    done, begun = threading.Event(), time.monotonic()

    def repeat() -> None:
        interval = first
        while not done.wait(interval):
            say(f"{what}: {time.monotonic() - begun:.0f} s so far")
            interval = min(2 * interval, 60)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def progress(say: Say) -> Iterator[None]:
    """A context in which `Dataset.map` reports its progress."""
    import datasets

    real = datasets.Dataset.map
    last = [time.monotonic()]

    def mapped(self: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        total, seen, what = len(self), [0], kwargs.get("desc") or "rows"
        if function is None or total < 2000:
            return real(self, function, *args, **kwargs)

        def counting(*given: Any, **named: Any) -> Any:
            seen[0] += len(next(iter(given[0].values()))) if kwargs.get("batched") and len(given[0]) else 1
            if time.monotonic() - last[0] > 2:
                last[0] = time.monotonic()
                say(f"{what}: {seen[0]:,} of {total:,}")
            return function(*given, **named)

        # `Dataset.map` passes rows, indices and ranks by position, so `counting` needs no parameter names
        return real(self, counting, *args, **kwargs)

    datasets.Dataset.map = mapped
    try:
        yield
    finally:
        datasets.Dataset.map = real
