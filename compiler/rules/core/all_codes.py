"""Every code that a diagnostic can have: the codes of the grammar, of the compiler and of the rules."""

from __future__ import annotations

from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.rules import every
from xpc.grammar.codes import CODES as SYNTAX


def all_codes() -> dict[str, tuple[str, str, str]]:
    """The slug, severity and explanation of every code, sorted by code."""
    found = {code: (slug, severity, explanation(code)) for code, (slug, severity) in CODES.items()}
    found |= {
        code: (one.slug, "note" if one.slug == "more-errors" else "error", explanation(code))
        for code, one in SYNTAX.items()
    }
    found |= {one.code: (one.slug, one.severity, one.text) for one in every()}
    return dict(sorted(found.items()))
