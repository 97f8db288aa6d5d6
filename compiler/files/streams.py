"""The standard streams: closed, full, or read by nobody. Each is said as what it is, never as a fault of the spec."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class Unwritable(Exception):
    """Standard output takes no more; the message says why, and is empty where its reader has left."""


class Stream:
    """Standard output or standard error, whose failures are told apart from those of files."""

    def __init__(self, to: TextIO, told: bool) -> None:
        self.to, self.told = to, told

    def write(self, text: str) -> int:
        """Write; raises Unwritable, or of standard error says nothing: there is nobody to tell."""
        try:
            return self.to.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """As `write`."""
        try:
            self.to.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """What is still held back goes nowhere, so that the interpreter does not stumble over it when it ends."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.to.fileno())
        os.close(nowhere)
        if self.told:
            why = "" if isinstance(error, BrokenPipeError) else f"standard output cannot be written: {error.strerror}"
            raise Unwritable(why) from error

    def __getattr__(self, name: str) -> object:
        return getattr(self.to, name)


class Guarded:
    """While it is entered, the standard streams fail as `Stream` does; a closed one leads nowhere."""

    def __enter__(self) -> None:
        self.before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _open(sys.stdout, True), _open(sys.stderr, False)

    def __exit__(self, *error: object) -> None:
        sys.stderr.flush()
        sys.stdout, sys.stderr = self.before


def _open(stream: TextIO | None, told: bool) -> TextIO:
    if stream is None:  # closed by the caller
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return Stream(stream, told)  # type: ignore[return-value]


def standard_input(limit: int) -> bytes:
    """What standard input gives, and one byte more than `limit` of what is longer. Raises OSError with a sentence."""
    if sys.stdin is None:
        raise OSError("it is closed")
    return sys.stdin.buffer.read(limit + 1)
