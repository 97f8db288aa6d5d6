"""Join the settings of a clause that is written twice: `lora(rank=16) lora(alpha=32)` becomes `lora(rank=16,
alpha=32)`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

CALL = re.compile(r"(?P<clause>[a-z_]+)\((?P<settings>[^()\n]*)\)")
NAME = re.compile(r"(\w+)[ \t]*=")


def join_clauses(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Add an edit to each finding about a clause that is written twice as a call, with different settings."""
    return [_joined(one) if one.code == "XP103" else one for one in problems]


def _joined(found: Diagnostic) -> Diagnostic:
    first, second = found.related[0] if len(found.related) == 1 else None, found.primary
    if first is None or second is None or first.source is not second.source:
        return found
    text = second.source.text
    one, other = CALL.match(text, first.span.start), CALL.match(text, second.span.start)
    if one is None or other is None or one["clause"] != other["clause"]:
        return found
    if not {*NAME.findall(one["settings"])}.isdisjoint(NAME.findall(other["settings"])):
        return found
    settings = ", ".join(filter(None, (one["settings"].strip(), other["settings"].strip())))
    start, end = line_bounds(text, other.start(), other.start())
    alone = text[start : other.start()].strip() == "" and text[other.end() : end].strip() == ""
    gone = Span(start - 1, end) if alone and start else Span(len(text[: other.start()].rstrip(" \t")), other.end())
    edits = (Edit(Span(*one.span("settings")), settings), Edit(gone, ""))
    return evolve(found, help=f"write `{one['clause']}({settings})`", edits=edits)
