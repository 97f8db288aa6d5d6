"""Kill a process at each of its file system calls, one call per run. So a test can show that the process never leaves a
half-written file.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from typing import Any

CALLS = ("rename", "replace", "mkdir", "link", "unlink", "rmdir", "chmod", "fchmod", "open", "listdir")
KILLED = 137


class Half:
    """A file that can kill the process in the middle of a write: if ``reached()`` is true, ``write`` writes only half
    of the data and then kills the process.
    """

    def __init__(self, handle: Any, reached: Callable[[], bool]) -> None:
        self.handle, self.reached = handle, reached

    def write(self, data: bytes) -> int:
        if self.reached():
            self.handle.write(data[: len(data) // 2])
            self.handle.flush()
            os._exit(KILLED)
        return int(self.handle.write(data))

    def __enter__(self) -> Half:
        return self

    def __exit__(self, *rest: object) -> None:
        self.handle.close()


def killed_everywhere(action: Callable[[], object], before: Callable[[], object], swap: bool = True) -> Iterator[int]:
    """For n = 1, 2, ...: call ``before``, run ``action`` in a child process that is killed at its n-th file system
    call, and yield n.

    The loop ends when a child finishes ``action`` before its n-th call. If ``swap`` is false, the child behaves as if
    the system could not exchange two names atomically.
    """
    for at in range(1, 10_000):
        before()
        child = os.fork()
        if child == 0:
            try:
                _patch(at, swap)
                action()
            except BaseException:
                os._exit(3)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return
        assert status == KILLED, f"the action failed at call {at} ({status})"
        yield at


def _patch(at: int, swap: bool) -> None:
    from xpc.compiler.files import atomic

    count = 0

    def reached() -> bool:
        nonlocal count
        count += 1
        return count == at

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if reached():
                os._exit(KILLED)
            return real(*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))
    opened, given = dying(builtins.open), os.fdopen

    def opening(path: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        handle = opened(path, mode, *rest, **named)
        return Half(handle, reached) if "w" in mode else handle

    builtins.open = opening  # type: ignore[assignment]
    os.fdopen = lambda held, mode="r": (  # type: ignore[assignment]
        Half(given(held, mode), reached) if "w" in mode else given(held, mode)
    )
    atomic.exchange = dying(atomic.exchange) if swap else lambda one, other: False  # type: ignore[assignment]
