"""The error for a one-line block that does not end on its line, and the edits that write the block over
several lines.
"""

from __future__ import annotations

import re

from xpc.grammar.diagnostic import Edit
from xpc.grammar.source import Span

ENDS_ON_ITS_LINE = (
    "a block with settings on the line of its `{` must end on that line",
    "end the line after `{`, write one setting a line without commas, and `}` on a line of its own",
)
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|#[^\n]*|[{}\[\](),]')
_LAST = re.compile(r"[ \t]*\n")


def written_out(text: str, start: int, length: int) -> tuple[Edit, ...]:
    """The edits that put each setting of the block at `start`, and of the blocks inside of it, on its own line.

    For an unclosed block there are no edits: `scan` has already reported the block, and has put its closing brace after
    the end of the source text. `length` is the length of the source text.
    """
    edits: list[Edit] = []
    braces = brackets = 0
    for match in _TOKEN.finditer(text, start):
        mark, at = match[0], match.start()
        if mark in "[]()":
            brackets += 1 if mark in "[(" else -1
        elif mark == "{":
            braces += 1
            edits.append(Edit(Span(at + 1, at + 1), "\n"))
        elif mark == "}":
            braces -= 1
            edits.append(Edit(Span(at, at), "\n"))
            if not braces:
                return tuple(edits) if at < length else ()
        elif mark == "," and not brackets:
            edits.append(Edit(Span(at, at + 1), "" if _LAST.match(text, at + 1) else "\n"))
    return ()
