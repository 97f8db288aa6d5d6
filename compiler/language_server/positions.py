"""Convert between offsets in a text and the positions that editors use. Such a position is a pair: a line, and a number
of code units in this line.

In the editors' protocol, a line ends only at a line feed, a carriage return or both. `str.splitlines` and pygls also
split at other characters, so they are not used.
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
"""Maps each encoding that an editor can choose to a function that counts the code units of a text."""
HALF = re.compile("[\ud800-\udfff]")
"""Matches a lone surrogate: half of the UTF-16 encoding of a character, which an editor may send while the character is
being typed. JSON may contain a lone surrogate, UTF-8 may not.
"""


def as_bytes(text: str) -> bytes:
    """Encode the text of an editor as the bytes of a file."""
    return HALF.sub("\ufffd", text).encode()


def as_source(text: str) -> Source:
    """The text of an editor as a Source, which the compiler reads."""
    return decode(as_bytes(text), "spec.xp")[0]


def position(source: Source, offset: int, units: Units) -> tuple[int, int]:
    """The line of an offset, and the number of code units before the offset in that line; both count from 0."""
    line, column = source.position(offset)
    return line - 1, units(source.line(line)[: column - 1])


def offset(source: Source, line: int, character: int, units: Units) -> int:
    """Convert a position (a line and a number of code units) to an offset. If the position is after the end of its
    line, the result is the end of this line; if it is after the end of the text, the end of the text.
    """
    if line >= source.lines:
        return len(source.text)
    text, column = source.line(line + 1), 0
    while column < len(text) and character > 0:
        character -= units(text[column])
        column += 1
    return source.start(line + 1) + column
