"""The classes `Source`, a text with a name, and `Span`, a part of it."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from xpc.grammar.record import entity, field, record


@record
class Span:
    """A part of `Source.text`, from `start` to `end` (exclusive), in code points."""

    start: int
    end: int

    def __lt__(self, other: Span) -> bool:
        return (self.start, self.end) < (other.start, other.end)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


@entity
class Source:
    """A text and its name. Diagnostics show the name, which is never opened as a file.

    `damage` lists the spans that `read.decode` has reported and replaced.
    """

    name: str
    text: str = field(repr=False)
    damage: tuple[Span, ...] = field(default=(), kw_only=True, repr=False)

    @cached_property
    def _starts(self) -> list[int]:
        return _line_starts(self.text)

    def slice(self, span: Span) -> str:
        """The text at a span."""
        return self.text[span.start : span.end]

    def position(self, offset: int) -> tuple[int, int]:
        """Return a pair: the line and the column of an offset, both counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    @property
    def lines(self) -> int:
        """The number of lines. After a newline at the end of the text, one more (empty) line is counted."""
        return len(self._starts)

    def start(self, number: int) -> int:
        """The offset at which line `number` (counted from 1) begins."""
        return self._starts[number - 1]

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), without its newline."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end]
