"""Findings that a comment of a spec silenced."""

from __future__ import annotations

from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import record


@record
class Silenced:
    """A silenced finding, with the place of the comment and its reason."""

    finding: Diagnostic
    place: Label
    reason: str
