"""Convert the position of a label to lines and columns, and sort findings into the order that all formats use."""

from __future__ import annotations

from collections.abc import Iterable

from xpc.grammar.diagnostic import ERROR, NOTE, WARNING, Diagnostic, Label
from xpc.grammar.record import record
from xpc.grammar.source import Source, Span

_RANK = {ERROR: 0, WARNING: 1, NOTE: 2}


@record
class Position:
    """A position in a text. Lines and columns count from 1, and columns count code points. `end_column` is
    exclusive.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


def clamp(source: Source, span: Span) -> Span:
    """The part of a span that is inside of the text, so that a finding can be printed even if its span ends one
    character after the text.
    """
    start = min(max(span.start, 0), len(source.text))
    return Span(start, min(max(span.end, start), len(source.text)))


def position(source: Source, span: Span) -> Position:
    """The lines and columns of a span."""
    span = clamp(source, span)
    return Position(source.name, *source.position(span.start), *source.position(span.end))


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Remove duplicates and sort by file, line, column and severity. The notes of a file come after its errors and
    warnings, and findings without a position come last. The sort is stable.
    """
    unique: dict[object, Diagnostic] = {}
    for diagnostic in diagnostics:
        unique.setdefault(_identity(diagnostic), diagnostic)
    return sorted(unique.values(), key=_order)


def _order(diagnostic: Diagnostic) -> tuple[bool, str, bool, int, int, int]:
    rank = _RANK.get(diagnostic.severity, len(_RANK))
    if diagnostic.primary is None:
        return True, "", False, 0, 0, rank
    where = position(diagnostic.primary.source, diagnostic.primary.span)
    return False, where.file, diagnostic.severity == NOTE, where.line, where.column, rank


def _identity(diagnostic: Diagnostic) -> object:
    # two reads of the same file give two Sources that are not equal, so findings are compared by their positions
    locations = tuple((position(label.source, label.span), label.text) for label in labels(diagnostic))
    return (
        diagnostic.code,
        diagnostic.slug,
        diagnostic.severity,
        diagnostic.message,
        diagnostic.primary is None,
        locations,
        diagnostic.help,
    )


def labels(diagnostic: Diagnostic) -> tuple[Label, ...]:
    """All labels of a finding. Its primary label comes first."""
    primary = () if diagnostic.primary is None else (diagnostic.primary,)
    return primary + diagnostic.related
