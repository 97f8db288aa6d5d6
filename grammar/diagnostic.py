"""Diagnostics: errors, warnings and notes with their locations. All stages of xpc report this type, and
`xpc.compiler.render` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable

from xpc.grammar.record import record
from xpc.grammar.source import Source, Span

ERROR = "error"
WARNING = "warning"
NOTE = "note"


@record
class Label:
    """A location in a source text, with a text to print there, such as a fact or a calculation."""

    source: Source
    span: Span
    text: str = ""

    @property
    def typed(self) -> str:
        """The source text at the label's location."""
        return self.source.slice(self.span)


@record
class Edit:
    """A replacement that resolves a finding, in the source text of the finding's primary label."""

    span: Span
    text: str


@record
class Diagnostic:
    """A finding: its code, slug (short name) and severity, a message of one clause, and the locations in the source.

    `help` says what to write instead, and `edits` are the replacements that write it.
    """

    code: str
    slug: str
    severity: str
    message: str
    primary: Label | None = None
    related: tuple[Label, ...] = ()
    help: str | None = None
    edits: tuple[Edit, ...] = ()


@record
class Silenced:
    """A silenced finding, with the location of the comment and the reason given in the comment."""

    finding: Diagnostic
    location: Label
    reason: str


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits to a text, and return the new text."""
    for edit in sorted(edits, key=lambda one: one.span, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text
