"""The class `ParserPosition`: the position at which the parser stopped, with the words that messages need."""

from __future__ import annotations

from xpc.grammar.codes import Code
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.lalr import Node
from xpc.grammar.record import record
from xpc.grammar.source import Source, Span


@record
class ParserPosition:
    """The position at which the parser stopped. `before` is the last word before the position on its line. `met` is the
    kind of the token at the position, and `shown` is the token as messages print it.
    """

    source: Source
    span: Span
    shown: str
    met: str
    before: Span | None
    stack: tuple[Node, ...]

    @property
    def one_line(self) -> int | None:
        """The offset at which the outermost one-line block around the position begins, or None."""
        found: list[int | None] = []
        for item, after in zip(self.stack, (*self.stack[1:], None), strict=False):
            if item.kind == "LBRACE":
                found.append(None if after is not None and after.kind == "_NL" else item.start)
            elif item.kind == "RBRACE":
                found.pop()
        return next((start for start in found if start is not None), None)

    @property
    def last(self) -> str:
        """The kind of the token or phrase before the position."""
        return self.stack[-1].kind if self.stack else ""

    @property
    def word(self) -> str:
        """The last word that the parser read on this line."""
        return self.source.slice(self.before) if self.before else ""

    def error(
        self,
        code: Code,
        message: str,
        remedy: str | None = None,
        *,
        at_last: bool = False,
        edits: tuple[Edit, ...] = (),
    ) -> Diagnostic:
        """Make a diagnostic about the token at which the parser stopped, or about the last word before this token."""
        span = self.before if self.before and (at_last or self.met == "_NL") else self.span
        return Diagnostic(code.code, code.slug, ERROR, message, Label(self.source, span), help=remedy, edits=edits)
