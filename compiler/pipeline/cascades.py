"""Drop findings that are only consequences of a misspelt name or a wrong value, and add those that its correction
leaves. This module is imported only for a spec with such an error.

For example, `hadrware 1 x a100-80gb` is not a hardware setting, so the default hardware with 8 GPUs is assumed, and a
second error says that `gbs=1` cannot be divided by 8. To find such consequences, the suggested edits are applied and
the changed text is checked: a finding that it does not have was only a consequence. If the changed text has an error
that was hidden before, the error is reported in the same round: in `sweep { warmup_ratio = [0.03] }`, the name becomes
`warmup`, and only then is 0.03 known to be a share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xpc.compiler.rules import FIRST_RULE
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, applied
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

MORE = "XP006"
"""The code of the finding that says how many findings are not shown."""


def causes(found: Sequence[Diagnostic], name: str) -> list[Diagnostic]:
    """The errors of the spec itself, without those of its bases, that have an edit. Of two errors with overlapping
    edits, only the first is returned.
    """
    out: list[Diagnostic] = []
    end = 0
    for one in sorted((one for one in found if _is_cause(one, name)), key=lambda one: one.edits[0].span):
        if one.edits[0].span.start >= end:
            out.append(one)
            end = max(edit.span.end for edit in one.edits)
    return out


def _is_cause(one: Diagnostic, name: str) -> bool:
    return (
        one.severity == ERROR
        and one.code < FIRST_RULE
        and bool(one.edits)
        and one.primary is not None
        and one.primary.source.name == name
    )


def in_one_round(
    found: Sequence[Diagnostic], name: str, findings: Callable[[str], Sequence[Diagnostic]]
) -> tuple[Diagnostic, ...]:
    """Drop the findings that disappear when the suggested edits are applied, and add the errors that then appear.

    `findings` is a function that checks a text and returns its findings. If no finding has an edit, nothing changes.
    """
    mistakes = causes(found, name)
    source = mistakes[0].primary.source if mistakes and mistakes[0].primary is not None else None
    if source is None:
        return tuple(found)
    edits: list[Edit] = [edit for one in mistakes for edit in one.edits]
    after = findings(applied(source.text, edits))
    remaining = {(one.code, one.message) for one in after}
    kept = [one for one in found if one in mistakes or one.code == MORE or (one.code, one.message) in remaining]
    known = {(one.code, one.message) for one in found}
    later = [one for one in after if _is_cause(one, name) and (one.code, one.message) not in known]
    return tuple(_with_later(kept, later, source, sorted(edits, key=lambda one: one.span)))


def _with_later(
    found: list[Diagnostic], later: Sequence[Diagnostic], source: Source, edits: Sequence[Edit]
) -> list[Diagnostic]:
    """Add the errors of the changed text (`later`) to the findings about the original text (`source`). An error inside
    of an inserted text corrects the edit that inserts this text; any other is reported at its place in the original.
    """
    for one in later:
        inside = [number for number, edit in enumerate(edits) if _is_inside(one, _placed(edits, number), edit)]
        if len(inside) == 1:
            edit, start = edits[inside[0]], _placed(edits, inside[0])
            moved = [Edit(Span(each.span.start - start, each.span.end - start), each.text) for each in one.edits]
            text = applied(edit.text, moved)
            found = [_corrected(each, edit, text) for each in found]
            edits = [Edit(edit.span, text) if each == edit else each for each in edits]
            return found  # the places of further errors are those before this correction
        at = None if one.primary is None else _original(one.primary.span, edits)
        moved_edits = [(_original(each.span, edits), each.text) for each in one.edits]
        if at is None or any(span is None for span, _ in moved_edits):
            continue
        placed = tuple(Edit(span, text) for span, text in moved_edits if span is not None)
        label = None if one.primary is None else evolve(one.primary, source=source, span=at)
        found = [*found, evolve(one, primary=label, related=(), edits=placed)]
    return found


def _placed(edits: Sequence[Edit], number: int) -> int:
    """The offset in the changed text at which the inserted text of an edit begins."""
    before = edits[:number]
    return edits[number].span.start + sum(len(one.text) - (one.span.end - one.span.start) for one in before)


def _is_inside(one: Diagnostic, start: int, edit: Edit) -> bool:
    end = start + len(edit.text)
    return bool(edit.text) and all(start <= each.span.start and each.span.end <= end for each in one.edits)


def _corrected(one: Diagnostic, edit: Edit, text: str) -> Diagnostic:
    """A finding with another text for one of its edits. Its help names the new text, too."""
    if edit not in one.edits:
        return one
    help = one.help.replace(f"`{edit.text}`", f"`{text}`") if one.help else one.help
    return evolve(one, help=help, edits=tuple(Edit(edit.span, text) if each == edit else each for each in one.edits))


def _original(span: Span, edits: Sequence[Edit]) -> Span | None:
    """The place in the original text of a place in the changed text. None if an edit changed something there."""
    shift = 0
    for number, edit in enumerate(edits):
        start = _placed(edits, number)
        end = start + len(edit.text)
        if span.end <= start:
            break
        if span.start < end:
            return None
        shift += len(edit.text) - (edit.span.end - edit.span.start)
    return Span(span.start - shift, span.end - shift)
