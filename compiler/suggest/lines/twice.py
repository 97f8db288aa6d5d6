"""Join the settings of a clause that is written twice: `lora(rank=16) lora(alpha=32)` becomes `lora(rank=16,
alpha=32)`, and `hub = me/x hub(private)` becomes `hub(name=me/x, private)`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language.schema import CLAUSES
from xpc.compiler.suggest.pasted_blocks import clause_of, joined
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

CALL = re.compile(
    r"(?P<clause>[a-z_]+)(?:\((?P<settings>[^()\n]*)\)|(?<=\bhub)[ \t]*=[ \t]*(?P<name>\"[^\"\n]*\"|[\w./-]+)"
    r"|[ \t]*=[ \t]*true\b|(?<=\w)(?!\w|[ \t]*[=({]|[ \t]+(?:[\d\"]|\w+[ \t]*=|(?:false|no|off|none)\b)))"
)
NAME = re.compile(r"(\w+)[ \t]*=")
COUNT = re.compile(r"write `hardware (?P<count>\d+) x GPU`")
CARD = re.compile(r"hardware(?: ?= ?| )(?P<gpu>[a-z][\w.-]*)")
ALONE = re.compile(r"[ \t]*(?:- |--)?[\w\"'-]+[ \t]*[:= \t][ \t]*[\"']?\d+[\"']?,?[ \t]*(?:#.*)?")
"""Patterns that join a number of GPUs and their name on two lines. COUNT matches a help that states the number, CARD a
clause `hardware h100-80gb`, and ALONE a line with a single number, such as `gpus_per_node: 8`.
"""


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
            start = line_bounds(_text(out[at]), edit.span.start, edit.span.start)[0] - 1
            span = edit.span if first else Span(start, edit.span.end)
            help = f"write `{form}`" if first else f"leave the line out: `{form}` says it"
            out[at] = evolve(out[at], help=help[:600], edits=(Edit(span, form if first else ""),))
    return out


def join_machines(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Join a number of GPUs and their name on two lines: `gpus_per_node: 8` and `gpu_type: h100-80gb` become
    `hardware 8 x h100-80gb`.
    """
    out = list(problems)
    counts = [(at, found) for at, one in enumerate(out) if (found := COUNT.match(one.help or "")) and not one.edits]
    cards = [(at, name) for at, one in enumerate(out) if (name := _card(one)) is not None]
    if len(counts) != 1 or len(cards) != 1 or out[counts[0][0]].primary is None:
        return out
    (at, count), (other, card) = counts[0], cards[0]
    label = out[at].primary
    assert label is not None
    start, end = line_bounds(label.source.text, label.span.start, label.span.start)
    at_card = out[other].edits[0].span.start
    first, last = line_bounds(_text(out[other]), at_card, at_card)
    if not ALONE.fullmatch(label.source.text, start, end) or not first:
        return out
    form = f"hardware {count['count']} x {card}"
    out[at] = evolve(out[at], help=f"write `{form}`", edits=(Edit(Span(start, end), form),))
    gone = (Edit(Span(first - 1, last), ""),)
    out[other] = evolve(out[other], help=f"leave the line out: `{form}` says it", edits=gone)
    return out


def _card(found: Diagnostic) -> str | None:
    """The GPU if a finding's edit makes a line `hardware` with a GPU and without a number. None for any other
    finding.
    """
    if len(found.edits) != 1 or not found.edits[0].text.startswith("hardware"):
        return None
    edit, text = found.edits[0], _text(found)
    start, end = line_bounds(text, edit.span.start, edit.span.start)
    card = CARD.fullmatch(text[start : edit.span.start] + edit.text + text[edit.span.end : end])
    return None if card is None or card["gpu"] == "cpu" else card["gpu"]


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
    if one is None or other is None or one["clause"] != other["clause"] or "false" in (one["name"], other["name"]):
        return found  # `hub = false` has no name that is called `false`
    written = [f"name={each['name']}" if each["name"] else (each["settings"] or "").strip() for each in (one, other)]
    if not {*NAME.findall(written[0])}.isdisjoint(NAME.findall(written[1])):
        return found
    form = f"{one['clause']}({', '.join(filter(None, written))})".removesuffix("()")
    start, end = line_bounds(text, other.start(), other.start())
    head = text[start : other.start()].strip()  # `method` of `method dpo`
    alone = (head == "" or head in CLAUSES) and text[other.end() : end].strip() == ""
    gone = Span(start - 1, end) if alone and start else Span(len(text[: other.start()].rstrip(" \t,")), other.end())
    return evolve(found, help=f"write `{form}`", edits=(Edit(Span(*one.span()), form), Edit(gone, "")))
