"""Findings and their places. Every stage reports this one type; `xpc.compiler.render` prints it."""

from __future__ import annotations

from collections.abc import Iterable

from xpc.grammar.record import record
from xpc.grammar.source import Source, Span

ERROR = "error"
WARNING = "warning"
NOTE = "note"


@record
class Label:
    """A place in a source and what to say about it (a fact or the arithmetic)."""

    source: Source
    span: Span
    text: str = ""

    @property
    def typed(self) -> str:
        """The text at the label's place."""
        return self.source.slice(self.span)


@record
class Edit:
    """A replacement in the primary label's source that resolves the finding."""

    span: Span
    text: str


@record
class Diagnostic:
    """One finding: a code and slug, a message of one clause, the places of a conflict, and a legal value to type."""

    code: str
    slug: str
    severity: str
    message: str
    primary: Label | None = None
    related: tuple[Label, ...] = ()
    help: str | None = None
    edits: tuple[Edit, ...] = ()


def applied(text: str, edits: Iterable[Edit]) -> str:
    """A text with its edits applied."""
    for edit in sorted(edits, key=lambda one: one.span, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text
