"""Scan a text before it is parsed: find comments, strings and brackets, and repair unclosed ones.

Repairs are made in a copy of the text, and keep the positions of all other text. Because of the repair, an unclosed
bracket causes only one diagnostic, and the parser can read the other statements.
"""

from __future__ import annotations

import re

from xpc.grammar import codes
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.record import record
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Comment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 64
# The largest number of diagnostics that a scan collects, which is more than `parse` reports. Without this limit, a text
# of brackets alone would cause a diagnostic for each bracket.
_MOST = 100

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n])*("?)|#[^\n]*|[{}\[\]()]')
_ON_LINE = re.compile(r"[ \t]*[^\s#]")
_PARTNER = {"}": "{", "]": "[", ")": "(", "{": "}", "[": "]", "(": ")"}


@record
class Scan:
    """The result of a scan. `text` is the repaired text, which ends with a newline.

    `pairs` are the matching brackets of the text by their offsets, in no particular order. `broken` are offsets in
    repaired statements. Such a statement is left out of the tree, because its author may have meant something else than
    the repair.
    """

    text: str
    comments: tuple[Comment, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    broken: tuple[int, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def spaces(text: str) -> str:
    """Replace all characters of a text except newlines by spaces."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def line_bounds(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a pair: the offset at which the line of `start` begins, and the offset at which the line of `end` ends,
    without its newline.
    """
    stop = text.find("\n", end)
    return text.rfind("\n", 0, start) + 1, len(text) if stop < 0 else stop


def scan(source: Source) -> Scan:
    """Find comments, pairs of brackets, and errors in strings and brackets, in linear time."""
    return _Scanner(source).run()


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.comments: list[Comment] = []
        self.found: list[Diagnostic] = []
        self.pairs: list[tuple[int, int]] = []
        self.open: list[int] = []
        # a repair is an offset and a text that overwrites the source from this offset on, without changing its length
        self.patches: list[tuple[int, str]] = []
        self.broken: list[int] = []

    def run(self) -> Scan:
        text, at = self.text, 0
        while match := _TOKEN.search(text, at):
            start, at = match.span()
            mark = text[start]
            if mark == "#":
                self.comments.append(Comment(Span(start, at), match[0]))
            elif mark == '"':
                if not match[1]:
                    at = self._unclosed_string(start, at)
            elif mark in "{[(":
                self.open.append(start)
                if len(self.open) > MAX_DEPTH:
                    self.found = []
                    self._report(codes.TOO_DEEP, start, f"brackets nest deeper than {MAX_DEPTH} levels")
                    return Scan("\n", tuple(self.comments), diagnostics=tuple(self.found))
            else:
                self._close(mark, start)
        tail = "\n"
        while self.open:
            start = self.open.pop()
            if text[start] == "{" and not self._stands_on_its_line(start):
                self.pairs.append((start, len(text) + len(tail)))
                tail += "}\n"
            self._unclosed(start, None)
        self.found.sort(key=lambda each: (each.primary.span.start, each.primary.span.end) if each.primary else (0, 0))
        repaired = self._patched()
        pairs = tuple(pair for pair in self.pairs if pair[0] >= len(text) or repaired[pair[0]] == text[pair[0]])
        return Scan(repaired + tail, tuple(self.comments), pairs, tuple(self.broken), tuple(self.found))

    def _report(self, code: codes.Code, start: int, message: str, text: str = "", **rest: Any) -> None:
        if len(self.found) >= _MOST:
            return
        label = Label(self.source, Span(start, start + 1), text)
        self.found.append(Diagnostic(code.code, code.slug, ERROR, message, label, **rest))

    def _unclosed_string(self, start: int, end: int) -> int:
        """Report a string that is not closed, and return the offset at which the scan continues. Closing brackets at
        the end of the line probably do not belong to the string, so the scan continues before these.
        """
        body = self.text[start + 1 : end].rstrip()
        body = body.rstrip("{}[]() \t") if body.endswith(("{", "]", ")")) else body
        end = start + 1 + len(body)
        self._report(
            codes.UNCLOSED_STRING,
            start,
            "this string is never closed",
            "opened here",
            help='end it with `"` on the same line',
            edits=(Edit(Span(end, end), '"'),),
        )
        self.patches.append((start, '"' + " " * (len(body) - 1) + '"' if body else "_"))
        self.broken.append(start)
        return end

    def _close(self, mark: str, start: int) -> None:
        depth = len(self.open) - 1
        while depth >= 0 and self.text[self.open[depth]] != _PARTNER[mark]:
            # a `]` or `)` inside of a block cannot close a bracket that was opened before the block
            depth = -1 if mark != "}" and self.text[self.open[depth]] == "{" else depth - 1
        if depth < 0:
            edit = Edit(Span(start, start + 1), "")
            self._report(codes.STRAY_BRACKET, start, f"this `{mark}` closes nothing", help="delete it", edits=(edit,))
            self.patches.append((start, " "))
            return
        while len(self.open) > depth + 1:
            self._unclosed(self.open.pop(), start)
        self.pairs.append((self.open.pop(), start))

    def _unclosed(self, start: int, before: int | None) -> None:
        """Report that the bracket at `start` is not closed. If a closing bracket of another kind stands where this
        bracket should be closed, `before` is its offset; None at the end of the file.
        """
        mark = self.text[start]
        location = len(self.text.rstrip()) if before is None else before
        wanted = _PARTNER[mark]
        lines = mark == "{" and not self._stands_on_its_line(start)
        note = f"the file ends without its `{wanted}`" if before is None else f"`{self.text[location]}` comes first"
        self._report(
            codes.UNCLOSED_BRACKET,
            start,
            f"this `{mark}` is never closed",
            "opened here",
            related=(Label(self.source, Span(location, location + (before is not None)), note),),
            help="close it with `}` on a line of its own" if lines else f"close it with `{wanted}`",
        )
        if lines:
            return
        # spaces replace the line from the unclosed bracket up to the first brace that opens or closes a block
        stop = line_bounds(self.text, start, start)[1]
        braces = (self.text.find(each, start + 1, stop) for each in "{}")
        stop = min((brace for brace in braces if brace >= 0), default=stop)
        self.patches.append((start, "_" + " " * (stop - start - 1)))
        self.broken.append(start)

    def _stands_on_its_line(self, start: int) -> bool:
        """Whether the block at `start` has contents on the same line as its `{`."""
        return _ON_LINE.match(self.text, start + 1) is not None

    def _patched(self) -> str:
        if not self.patches:
            return self.text
        characters = list(self.text)
        for start, text in self.patches:
            characters[start : start + len(text)] = text
        return "".join(characters)


def closing(text: str, start: int) -> int | None:
    """The offset after the `)` that closes the `(` at `start`, if both are on one line without a comment."""
    depth = 0
    for found in re.finditer(r'"[^"\n]*"|[()#\n]', text[start:]):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if found[0] in "#\n":
            return None
        if depth == 0:
            return start + found.end()
    return None
