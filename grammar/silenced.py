"""What a comment of a spec took out of the findings."""

from __future__ import annotations

from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import record


@record
class Silenced:
    """A finding that a comment took out of the report, the comment's place and its reason."""

    finding: Diagnostic
    place: Label
    reason: str
