"""Escape text for a terminal or a log, and compute its width on the screen.

A spec, a file name or a quoted value may contain escape sequences, bidirectional overrides (which reorder the text that
a reviewer sees, CVE-2021-42574) or lone surrogates (which cannot be encoded). Each such character is printed in the
form `<U+202E>`. GitHub's runner executes a line of a log that begins with `::` and has another `::`, or that contains
`##[` (actions/runner, ActionCommand.cs). In such a line, one `:` or the `[` is printed in the same form, so that the
runner does not execute the line.
"""

from __future__ import annotations

TAB = 4
"""The distance of tab stops in a printed source line, in columns."""

LONGEST = 2000
"""The formats for people shorten a message or label to this many code points. Messages and labels may quote long texts.
"""

COMMAND = "##["
"""The beginning of a command of GitHub's runner. The runner finds a command at any position of a line."""

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, longest: int | None = None) -> str:
    """Write a text on one line, with its unprintable characters escaped. If `longest` is given, the text is cut to this
    many code points.
    """
    if longest is not None and len(text) > longest:
        text = text[:longest] + "..."
    if not text.isprintable():
        text = "".join([c if c.isprintable() else _ESCAPES.get(c) or _spelled(c) for c in text])
    return _without_commands(text) if COMMAND in text or "::" in text else text


def _without_commands(text: str) -> str:
    text = text.replace(COMMAND, f"##{_spelled('[')}")
    start = len(text) - len(text.lstrip())
    command = text.startswith("::", start) and "::" in text[start + 2 :]
    return f"{text[:start]}{_spelled(':')}{text[start + 1 :]}" if command else text


def in_json(text: str) -> str:
    """Change JSON such that GitHub's runner finds no command in it. For a program that parses the JSON, the values stay
    the same.
    """
    return text.replace(COMMAND, "##\\u005b")


def cells(line: str) -> tuple[str, list[int]]:
    """Return a pair: a source line as it is printed, and the screen columns (from 0) of its code points and of its
    end.
    """
    if line.isascii() and line.isprintable() and COMMAND not in line:
        return line, list(range(len(line) + 1))
    from unicodedata import category, east_asian_width

    shown: list[str] = []
    columns = [0]
    at = 0
    for number, c in enumerate(line):
        if c == "\t":
            piece = " " * (TAB - at % TAB)
            width = len(piece)
        elif not c.isprintable() or (c == "[" and line.startswith(COMMAND, max(0, number - 2))):
            piece = _spelled(c)
            width = len(piece)
        else:
            piece = c
            # combining marks take no column of their own
            width = 0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in ("W", "F") else 1
        shown.append(piece)
        at += width
        columns.append(at)
    return "".join(shown), columns


def _spelled(c: str) -> str:
    return f"<U+{ord(c):04X}>"
