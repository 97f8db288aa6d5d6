"""Make text safe to send to a terminal, and compute its width there.

A spec, a file name or a quoted value may contain escape sequences, bidirectional overrides (which reorder the text that
a reviewer sees, CVE-2021-42574) or lone surrogates (which cannot be encoded). They are shown as `<U+202E>`, never sent.
"""

from __future__ import annotations

TAB = 4
"""Tab stops of a shown source line, in columns."""

LONGEST = 2000
"""Longer messages and labels, which quote long input, are cut in the formats for people."""

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, longest: int | None = None) -> str:
    """`text` on one line with everything unprintable spelled out, cut to `longest` code points if given."""
    if longest is not None and len(text) > longest:
        text = text[:longest] + "..."
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else _ESCAPES.get(c) or _spelled(c) for c in text])


def cells(line: str) -> tuple[str, list[int]]:
    """The shown form of a source line and, for each code point and for the end, its column on the screen (from 0)."""
    if line.isascii() and line.isprintable():
        return line, list(range(len(line) + 1))
    from unicodedata import category, east_asian_width

    shown: list[str] = []
    columns = [0]
    at = 0
    for c in line:
        if c == "\t":
            piece = " " * (TAB - at % TAB)
            width = len(piece)
        elif not c.isprintable():
            piece = _spelled(c)
            width = len(piece)
        else:
            piece = c
            # Enclosing and non-spacing marks take no column of their own.
            width = 0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in ("W", "F") else 1
        shown.append(piece)
        at += width
        columns.append(at)
    return "".join(shown), columns


def _spelled(c: str) -> str:
    return f"<U+{ord(c):04X}>"
