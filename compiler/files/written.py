"""Restore the user's spec from the `spec.xp` of a bundle. In the bundle's spec, the compiler has added all settings
that the user left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xpc.grammar.record import record
from xpc.grammar.scan import scan
from xpc.grammar.source import Source

FILLED = ("default", "derived", "registry, or")
"""The compiler's comment on a setting begins with one of these words if the compiler filled in the value. The comment
on a setting from an extended spec ends with the name of that spec.
"""
LENGTH = "length: "
"""The beginning of the compiler's comment on a `train` line with `for N epochs`."""


@record
class Line:
    """A line of a bundle's `spec.xp`: its number from 1, its code without the comment, and the comment's text
    (`note`).
    """

    number: int
    code: str
    note: str

    @property
    def filled(self) -> bool:
        """Whether the compiler, and not the user, wrote the setting on this line."""
        return self.note.removeprefix(LENGTH).startswith(FILLED) and not self.note.endswith(".xp")


@lru_cache(maxsize=1)
def lines(text: str) -> list[Line]:
    """The lines of a bundle's `spec.xp`. A `#` inside a string does not begin a comment."""
    source = Source("spec.xp", text)
    starts = {source.position(one.span.start)[0]: one for one in scan(source).comments}
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        note = starts.get(number)
        # a comment that begins with `# xpc:` silences findings; the user wrote it
        if note is not None and note.text.startswith("# xpc:"):
            note = None
        code = line if note is None else line[: len(line) - len(note.text)]
        out.append(Line(number, code.rstrip(), "" if note is None else note.text.removeprefix("# ").rstrip()))
    return out


def written(found: Sequence[Line], in_place: bool = False) -> str:
    """The text without the settings that the compiler filled in. Blocks that become empty by this are removed, too.

    With `in_place`, each removed line stays as an empty line.
    """
    out: list[str | None] = []
    heads: list[int] = []  # the line numbers of the blocks around the current line
    for at, line in enumerate(found):
        out.append(_kept(line))
        if line.code.endswith("{"):
            heads.append(at)
        elif line.code.strip() == "}" and heads:
            start = heads.pop()
            if not any(out[start + 1 : at]):
                out[start] = None if found[start].filled else found[start].code[:-1].rstrip()
                out[at] = None
    left = ["" if one is None else one for one in out if in_place or one is not None]
    return "\n".join(left)


def _kept(line: Line) -> str | None:
    """The part of a line that the user wrote. None if the compiler wrote the complete line."""
    if not line.filled:
        return line.code
    if line.code.startswith("train "):
        return line.code.rpartition(" for ")[0]
    return line.code.split(" ", 1)[0] + " {" if line.code.endswith("{") else None
