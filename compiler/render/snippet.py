"""A source line with carets (^^^) below a span."""

from __future__ import annotations

from xpc.compiler.render.position import clamp
from xpc.compiler.render.visible import LONGEST, cells, visible
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import record

WIDEST = 200
"""A source line with at most this many code points is shown completely. Of a longer line, only a window around the span
is shown.
"""

BEFORE = 60
"""If a line is longer than `WIDEST`, the window begins this many code points before the span."""

_CUT = "..."


@record
class Snippet:
    """A source line with a label below it. `number` and `column` count from 1. `text` is the line, and `marks` are the
    carets that are printed below the line.
    """

    file: str
    number: int
    column: int
    text: str
    marks: str
    label: str


def snippet(label: Label) -> Snippet:
    """The snippet for the first line of the label's span. The ends of the line are searched from the span, so that a
    line of a megabyte is never copied.
    """
    source, span = label.source, clamp(label.source, label.span)
    number, column = source.position(span.start)
    first = span.start - (column - 1)
    last = source.text.find("\n", span.start)
    if last < 0:
        last = len(source.text)
    left, right = first, last
    if last - first > WIDEST:
        right = min(last, max(first, span.start - BEFORE) + WIDEST)
        left = max(first, right - WIDEST)
    text, columns = cells(source.text[left:right])
    before = _CUT if left > first else ""
    after = _CUT if right < last else ""
    start = columns[span.start - left]
    end = columns[min(span.end, right) - left]
    return Snippet(
        file=visible(source.name),
        number=number,
        column=column,
        text=before + text + after,
        marks=" " * (len(before) + start) + "^" * max(1, end - start),
        label=visible(label.text, LONGEST),
    )
