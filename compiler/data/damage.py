"""Find texts that were damaged when their file was made: mojibake, HTML entities, escaped newlines, lost characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

FROM_1252 = "\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122"
"""The characters for the bytes from 0x80 to 0x9F in Windows' code page 1252, for use in a character class. In Latin-1,
these bytes are control characters.
"""
MOJIBAKE = re.compile(f"[ÃÐÑ][\x80-\xbf{FROM_1252}]|â€|Â[\xa1-\xbf]")
"""Matches characters that were encoded as UTF-8 but decoded with another encoding, as in `Ã©` for `é`."""
ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{2,6}|#x[0-9a-fA-F]{2,5});")
MARKUP = re.compile(r"<[a-zA-Z/!?]|```")
"""Matches a tag such as `<br>`, or the beginning of a block of code. A text with a match may contain HTML entities on
purpose.
"""
ESCAPED_LINE = re.compile(r"(?<!\\)\\n(?=\\n|[A-Z0-9 \-*#]|$)")
"""Matches the characters `\\n`, a backslash and an n, where a line may end. It does not match names of LaTeX such as
`\\nabla`, because a lowercase letter follows.
"""
LOST = "\ufffd"
"""The replacement character, which a decoder writes for bytes that it cannot read."""


def damage(values: Sequence[object]) -> set[str]:
    """The kinds of damage in the texts of a row: `mojibake`, `entities` (of HTML), `escaped_lines` (a backslash and an
    n in place of a newline), `lost` (characters that could not be decoded) and `zero` (U+0000).
    """
    found: set[str] = set()
    for _, _, text in texts(values):
        if not text.isascii():
            if LOST in text or "\ud800" <= text[-1] <= "\udfff":
                found.add("lost")
            if ("Ã" in text or "â€" in text or "Â" in text or "Ð" in text or "Ñ" in text) and MOJIBAKE.search(text):
                found.add("mojibake")
        if "&" in text and ENTITY.search(text) and not MARKUP.search(text):
            found.add("entities")
        if "\\n" in text and "\n" not in text and ESCAPED_LINE.search(text):
            found.add("escaped_lines")
        if "\0" in text:
            found.add("zero")
    return found


def texts(values: Sequence[object]) -> Iterator[tuple[int, dict[str, object] | None, str]]:
    """Yield each non-empty text of a row as a tuple: the index of its column, the turn that contains it, and the text.
    The turn is None if the value of the column is a text, and not a list of turns.
    """
    for number, value in enumerate(values):
        if isinstance(value, str):
            if value:
                yield number, None, value
        elif isinstance(value, list):
            for turn in value:
                text = (turn.get("content") or turn.get("value")) if isinstance(turn, dict) else None
                if isinstance(text, str) and text:
                    yield number, turn, text
