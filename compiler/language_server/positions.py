"""Convert between offsets and editor positions, which are a line and a number of code units within the line.

A line ends only at a line feed, a carriage return or both. str.splitlines and pygls know more line ends, so they are
not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from xpc.grammar.read import decode
from xpc.grammar.source import Source

Units = Callable[[str], int]
UNITS: Mapping[str, Units] = {
    "utf-8": lambda text: len(text.encode()),
    "utf-16": lambda text: len(text.encode("utf-16-le")) // 2,
    "utf-32": len,
}
"""The number of code units of a text, by the encoding negotiated with the editor."""
HALF = re.compile("[\ud800-\udfff]")
"""A lone surrogate, half of a character being typed: valid in JSON but not in UTF-8."""


def as_bytes(text: str) -> bytes:
    """The text of an editor as the bytes of a file."""
    return HALF.sub("\ufffd", text).encode()


def as_source(text: str) -> Source:
    """The text of an editor as a Source of the compiler."""
    return decode(as_bytes(text), "spec.xp")[0]


def position(source: Source, offset: int, units: Units) -> tuple[int, int]:
    """The line of an offset and the code units before it in that line, both from 0."""
    line, column = source.position(offset)
    return line - 1, units(source.line(line)[: column - 1])


def offset(source: Source, line: int, character: int, units: Units) -> int:
    """The offset of a position, clipped to the end of the line and of the text."""
    if line >= source.lines:
        return len(source.text)
    text, column = source.line(line + 1), 0
    while column < len(text) and character > 0:
        character -= units(text[column])
        column += 1
    return source.start(line + 1) + column
