"""Join the settings of a clause that is written twice: `lora(rank=16) lora(alpha=32)` becomes `lora(rank=16,
alpha=32)`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.suggest.pasted_blocks import clause_of, joined
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

CALL = re.compile(r"(?P<clause>[a-z_]+)\((?P<settings>[^()\n]*)\)")
NAME = re.compile(r"(\w+)[ \t]*=")


def join_clauses(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Add an edit to each finding about a clause that is written twice as a call, with different settings."""
    return [_joined(one) if one.code == "XP103" else one for one in problems]


def join_edits(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Join the edits of several lines that are settings of one clause: `lora_r: 8` and `lora_alpha: 16` become
    `lora(rank=8, alpha=16)` in the first of these lines.
    """
    out = list(problems)
    groups: dict[tuple[str, str], list[int]] = {}
    for at, one in enumerate(out):
        clause = _whole_line(one)
        if clause and one.primary is not None:
            groups.setdefault((one.primary.source.name, clause), []).append(at)
    for numbers in groups.values():
        forms = joined([out[at].edits[0].text for at in numbers])
        names = NAME.findall(forms[0])
        if len(numbers) < 2 or len(set(names)) < len(names):
            continue
        form = forms[0]
        for at in numbers:
            first, edit = at == numbers[0], out[at].edits[0]
            span = (
                edit.span
                if first
                else Span(line_bounds(_text(out[at]), edit.span.start, edit.span.start)[0] - 1, edit.span.end)
            )
            help = f"write `{form}`" if first else f"leave the line out: `{form}` says it"
            out[at] = evolve(out[at], help=help[:600], edits=(Edit(span, form if first else ""),))
    return out


def _text(found: Diagnostic) -> str:
    assert found.primary is not None
    return found.primary.source.text


def _whole_line(found: Diagnostic) -> str:
    """The clause that a finding's edit writes, if this is the finding's only edit, and it replaces a complete line
    outside of blocks. "" for any other finding.
    """
    if len(found.edits) != 1 or found.primary is None or found.code[:3] not in ("XP0", "XP1"):
        return ""
    edit, text = found.edits[0], _text(found)
    start, end = line_bounds(text, edit.span.start, edit.span.start)
    if not start or text[start : edit.span.start].strip() or text[edit.span.end : end].strip():
        return ""
    inside = text.count("{", 0, start) != text.count("}", 0, start)
    return "" if inside else clause_of(edit.text)


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
