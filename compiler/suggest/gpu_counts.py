"""A count of GPUs in another form: `h100-80gb x 8`, `8 * h100-80gb`, `H100:8`, `"8 x h100-80gb"`.

Loaded only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler import registry
from xpc.compiler.suggest import registry_names
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

CODES = ("XP014", "XP023", "XP025", "XP030", "XP101", "XP104")
"""Findings that such a form has."""
GPU, COUNT = r"(?P<gpu>[A-Za-z][\w.-]*)", r"(?P<count>\d{1,4})"
FORMS = tuple(
    re.compile(form)
    for form in (
        rf"{GPU}[ \t]*(?:[x*×][ \t]+|[*×]|[x:])[ \t]*{COUNT}(?![\w.])",
        rf"{GPU}\([ \t]*(?:count[ \t]*=[ \t]*)?{COUNT}[ \t]*\)",
        rf'"[ \t]*{COUNT}[ \t]*[x*×][ \t]*{GPU}[ \t]*"',
        rf"(?<![\w.\-\"]){COUNT}[ \t]*[*×,][ \t]*{GPU}",
        rf"(?<=hardware )[ \t]*{GPU}[ \t]+{COUNT}(?![\w.])",
        rf"(?<=hardware )[ \t]*{COUNT}[ \t]+{GPU}",
    )
)


def told(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The findings; those of a count of GPUs in another form become one, with what to type."""
    out: list[Diagnostic] = []
    said: list[tuple[Diagnostic, Span]] = []
    for one in found:
        if one.code not in CODES or one.primary is None:
            out.append(one)
            continue
        place = one.primary
        if any(
            place.source is other.primary.source and _within(place.span, span) for other, span in said if other.primary
        ):
            continue  # more of the same form
        meant = _meant(one)
        if meant is not None:
            said.append(meant)
        out.append(one if meant is None else meant[0])
    return out


def in_words(typed: str) -> str:
    """What to write for a value of `hardware` in such a form, or an empty text."""
    match = next(filter(None, (form.fullmatch(typed) for form in FORMS)), None)
    forms = [] if match is None else _forms(match["count"], match["gpu"])
    return f"write {registry_names.either(forms)}" if forms else ""


def _forms(count: str, name: str) -> list[str]:
    """The counts of GPUs that may be meant."""
    known = name == "cpu" or registry.find_gpu(name) is not None
    return [f"{count} x {one}" for one in ((name,) if known else registry_names.gpu(name)[0].names)]


def _within(one: Span, other: Span) -> bool:
    return other.start <= one.start and one.end <= other.end


def _meant(found: Diagnostic) -> tuple[Diagnostic, Span] | None:
    """The finding with the form to type, and where the other one stands; None where there is none."""
    assert found.primary is not None
    text, at = found.primary.source.text, found.primary.span.start
    start, end = line_bounds(text, at, at)
    line = text[start : min(end, start + 1000)]
    for form in FORMS:
        for match in form.finditer(line):
            span = Span(start + match.start(), start + match.end())
            count, name = match["count"], match["gpu"]
            if not span.start <= at < span.end or name == "hardware":
                continue
            forms = _forms(count, name)
            if forms:
                edits = (Edit(span, forms[0]),) if len(forms) == 1 else ()
                primary = evolve(found.primary, span=span, text="")
                message = "a count of GPUs stands before their name, with `x` between"
                help = f"write {registry_names.either(forms)}"
                return evolve(found, message=message, primary=primary, help=help, edits=edits), span
    return None
