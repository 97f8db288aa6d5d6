"""Handle standard streams that are closed, full, or no longer read by the program at the other end. For such a stream,
xpc reports a failed write, and not an error in the spec.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class Unwritable(Exception):
    """Raised if standard output cannot be written. The message says why. The message is "" if the program that reads
    the output has ended, because nobody would see a message.
    """


class Stream:
    """Standard output or standard error. If writing fails and `reports` is true, the stream raises Unwritable. If
    `reports` is false, it drops the output.
    """

    def __init__(self, to: TextIO, reports: bool) -> None:
        self.to, self.reports = to, reports

    def write(self, text: str) -> int:
        """Write a text. Raises Unwritable if that fails. On standard error, a failure is ignored, because it could be
        reported nowhere.
        """
        try:
            return self.to.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush the stream; failures are treated as in `write`."""
        try:
            self.to.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Send the output that is still buffered to the null device. Without this, the interpreter would try to flush
        the buffer at exit, and would fail.
        """
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.to.fileno())
        os.close(nowhere)
        if self.reports:
            why = "" if isinstance(error, BrokenPipeError) else f"standard output cannot be written: {error.strerror}"
            raise Unwritable(why) from error

    def __getattr__(self, name: str) -> object:
        return getattr(self.to, name)


class Guarded:
    """A context in which `Stream`s replace the standard streams. A stream that is closed is replaced by the null
    device.
    """

    def __enter__(self) -> None:
        self.before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _guarded(sys.stdout, True), _guarded(sys.stderr, False)

    def __exit__(self, *error: object) -> None:
        sys.stderr.flush()
        sys.stdout, sys.stderr = self.before


def _guarded(stream: TextIO | None, reports: bool) -> TextIO:
    if stream is None:  # the stream was closed when xpc was started
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return Stream(stream, reports)  # type: ignore[return-value]


def standard_input(limit: int) -> bytes:
    """Read standard input, at most `limit` + 1 bytes. Raises OSError with a sentence."""
    if sys.stdin is None:
        raise OSError("it is closed")
    return sys.stdin.buffer.read(limit + 1)
