"""The class `Silenced`: a finding that a comment in the spec silences."""

from __future__ import annotations

from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import record


@record
class Silenced:
    """A silenced finding, with the location of the comment and the reason given in the comment."""

    finding: Diagnostic
    place: Label
    reason: str
