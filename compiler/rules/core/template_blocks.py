"""Split a chat template into its texts and its blocks, without jinja. Each template is read once, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARK = re.compile(r"\\+|[\"']|\{[{%#]|[}%#]\}")
_ENDS = {"{{": "}}", "{%": "%}", "{#": "#}"}


def parts(template: str) -> Iterator[tuple[str, str, str]]:
    """Split a template into texts and blocks, and yield a triple for each. The triple has the mark at the beginning
    (`{{` or `{%`; "" for a text), the source, and the source without the marks and without string literals. Comments
    are left out, and so is a last block that is never closed.
    """
    begin, start, escaped, quote = "", 0, -1, ""
    code: list[str] = []
    for found in _MARK.finditer(template):
        mark, at, end = found[0], found.start(), found.end()
        if not begin:
            if mark in _ENDS:
                yield "", template[start:at], template[start:at]
                begin, start, quote, code, copied = mark, at, "", [], end
        elif begin == "{#":
            if mark == "#}":
                begin, start = "", end
        elif mark[0] == "\\":
            escaped = end if len(mark) % 2 else -1
        elif quote:
            if mark == quote and at != escaped:
                quote, copied = "", end
        elif mark in "\"'":
            code.append(template[copied:at])
            quote = mark
        elif mark == _ENDS[begin]:
            yield begin, template[start:end], "".join([*code, template[copied:at]])
            begin, start = "", end
    if not begin:
        yield "", template[start:], template[start:]


def without_comments(template: str) -> str:
    """The template without its comments, and without a last block that is never closed."""
    return "".join(part for _, part, _ in parts(template))


def code_of(template: str) -> str:
    """The code in the blocks of a chat template, one block per line: `if message.role ==` for `{% if message.role ==
    "user" %}`. String literals are left out.
    """
    return "\n".join(code for begin, _, code in parts(template) if begin)
