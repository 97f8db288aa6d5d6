"""Rewrite f-strings of Python 3.12 for Python 3.11, which does not allow the enclosing quotes of an f-string in its
expressions.
"""

from __future__ import annotations

import re

BEGIN = re.compile(r"""#[^\n]*|(?<![\w])([rbfuRBFU]{0,2})(\'\'\'|\"\"\"|\'|\")""")
"""Matches a comment, or the beginning of a string."""


def requoted(text: str) -> str:
    """Replace the quotes in expressions of f-strings: `f"{a["b"]}"` becomes `f"{a['b']}"`. Line numbers do not
    change.
    """
    out: list[str] = []
    at = 0
    while True:
        found = BEGIN.search(text, at)
        if found is None:
            return "".join([*out, text[at:]])
        out.append(text[at : found.start()])
        if found[2] is None:  # the match is a comment
            out.append(found[0])
            at = found.end()
            continue
        end = _end(text, found.end(), found[2], "f" in found[1].lower())
        piece = text[found.start() : end]
        if "f" in found[1].lower() and len(found[2]) == 1:
            inside = piece[len(found[0]) : -1]
            piece = found[0] + _inner(inside, found[2]) + found[2]
        out.append(piece)
        at = end


def _end(text: str, at: int, quote: str, formatted: bool) -> int:
    """The position after the string literal that begins at `at`. In an f-string, quotes inside braces do not end it."""
    depth = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if formatted and text[at] in "{}":
            double = text[at : at + 2] in ("{{", "}}") and not depth
            depth += 0 if double else 1 if text[at] == "{" else -1
            at += 2 if double else 1
            continue
        if formatted and depth > 0 and text[at] in "\"'":
            inner = text[at : at + 3] if text[at : at + 3] in ('"""', "'''") else text[at]
            at = _end(text, at + len(inner), inner, False)
            continue
        if text.startswith(quote, at) and depth <= 0:
            return at + len(quote)
        if text[at] == "\n" and len(quote) == 1 and depth <= 0:
            return at
        at += 1
    return at


def _inner(inside: str, quote: str) -> str:
    """The contents of an f-string, changed so that Python 3.11 can parse them: in an f-string with double quotes,
    double quotes in expressions become single quotes, and vice versa.

    An expression with a backslash, which Python 3.11 refuses, becomes an undefined name with an unknown value.
    """
    other = "'" if quote == '"' else '"'
    out: list[str] = []
    depth, begin = 0, 0
    for letter in inside:
        if letter == "{":
            depth += 1
            begin = len(out) if depth == 1 else begin
        elif letter == "}":
            depth -= 1
            if depth == 0 and "\\" in out[begin:]:
                out[begin + 1 :] = ["a_text_with_a_backslash"]
        out.append(other if letter == quote and depth > 0 else letter)
    return "".join(out)
