"""Offsets of a text as an editor counts them: a line, and units of an encoding within it.

A line ends at a line feed, a carriage return or both, and nowhere else: str.splitlines and pygls know more ends.
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
"""How many units a text has, by the encoding that an editor and the server agreed on."""
HALF = re.compile("[\ud800-\udfff]")
"""Half of a character that is being typed; JSON can hold it, and UTF-8 cannot."""


def as_bytes(text: str) -> bytes:
    """The text of an editor as a file would hold it."""
    return HALF.sub("\ufffd", text).encode()


def as_source(text: str) -> Source:
    """The text of an editor as the compiler reads it."""
    return decode(as_bytes(text), "spec.xp")[0]


def position(source: Source, offset: int, units: Units) -> tuple[int, int]:
    """The line and the units in it of an offset, both from 0."""
    line, column = source.position(offset)
    return line - 1, units(source.line(line)[: column - 1])


def offset(source: Source, line: int, character: int, units: Units) -> int:
    """The offset of a line and the units in it; the end of the line or of the text where that is nearer."""
    if line >= source.lines:
        return len(source.text)
    text, column = source.line(line + 1), 0
    while column < len(text) and character > 0:
        character -= units(text[column])
        column += 1
    return source.start(line + 1) + column
