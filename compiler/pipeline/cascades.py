"""Drop findings that are only consequences of a misspelt name or a wrong value, and add findings that appear once this
error is corrected. This module is imported only for a spec with such an error.

For example, `hadrware 1 x a100-80gb` is not a hardware setting, so the default hardware with 8 GPUs is assumed, and a
second error says that `gbs=1` cannot be divided by 8. To find such consequences, the suggested edits are applied and
the changed text is checked: a finding that the changed text does not have was only a consequence. If the changed text
has an error that was hidden before, the error is reported in the same round: in `sweep { warmup_ratio = [0.03] }`, the
name becomes `warmup`, and only then is 0.03 known to be a share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from xpc.compiler.rules import FIRST_RULE
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, applied
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

MORE = "XP006"
"""The code of the finding "N more findings are not shown"."""


def causes(found: Sequence[Diagnostic], name: str) -> list[Diagnostic]:
    """The errors that have an edit and are in the spec itself, not in a spec that it extends. If the edits of two
    errors overlap, only the first error is returned.
    """
    out: list[Diagnostic] = []
    end = 0
    for one in sorted((one for one in found if _is_cause(one, name)), key=_place):
        if one.edits[0].span.start >= end:
            out.append(one)
            end = max(edit.span.end for edit in one.edits)
    return out


def _place(one: Diagnostic) -> tuple[int, int]:
    """Where the edit of an error begins. Of two edits at one place, the longer one comes first."""
    span = one.edits[0].span
    return span.start, -span.end


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
    text = applied(source.text, edits)
    after = findings(text)
    further = [edit for one in causes(after, name) for edit in one.edits]
    # a corrected word can need a second edit: after `atn flash2` became `attn flash2`, it may have to be `attn=flash2`
    last = findings(applied(text, further)) if further else after
    remaining = {(one.code, one.message) for one in after if one.code < FIRST_RULE}
    remaining |= {(one.code, one.message) for one in last if one.code >= FIRST_RULE}
    own = set(mistakes)
    kept = [one for one in found if one in own or one.code == MORE or (one.code, one.message) in remaining]
    places = _Places(sorted(edits, key=lambda one: one.span))
    known = {(one.code, one.message, place) for one in found for place in (_start(one), None)}
    later = [one for one in after if _is_cause(one, name) and (one.code, one.message, _start(one, places)) not in known]
    if any(one.code == MORE for one in found):
        later = []  # the text before the edits may have these errors, too, among its findings that are not shown
    return tuple(_with_later(kept, later, source, places))


def _start(one: Diagnostic, places: _Places | None = None) -> int | None:
    """The offset at which a finding begins. With `places`, the finding is about the text after the suggested edits, and
    the offset is converted to the text before them. None if an edit changed this part of the text.
    """
    if one.primary is None:
        return None
    span = one.primary.span if places is None else places.original(one.primary.span)
    return None if span is None else span.start


def _with_later(
    found: list[Diagnostic], later: Sequence[Diagnostic], source: Source, places: _Places
) -> list[Diagnostic]:
    """Add the errors `later`, which a check of the text after the suggested edits finds, to the findings about the text
    before them (`source`). If such an error is inside of the text that an edit inserts, the edit is corrected. Any
    other such error is reported at its place in `source`.
    """
    out = [*found]
    for one in later:
        inside = places.around(one.edits)
        if len(inside) == 1:
            edit, start = places.edits[inside[0]], places.starts[inside[0]]
            moved = [Edit(Span(each.span.start - start, each.span.end - start), each.text) for each in one.edits]
            text = applied(edit.text, moved)
            # stop here, because the correction moves the text: the positions of the remaining errors no longer hold
            return [_corrected(each, edit, text) for each in out]
        at = None if one.primary is None else places.original(one.primary.span)
        moved_edits = [(places.original(each.span), each.text) for each in one.edits]
        if at is None or any(span is None for span, _ in moved_edits):
            continue
        placed = tuple(Edit(span, text) for span, text in moved_edits if span is not None)
        label = None if one.primary is None else evolve(one.primary, source=source, span=at)
        out.append(evolve(one, primary=label, related=(), edits=placed))
    return out


class _Places:
    """Converts places in the text after some edits to places in the text before them. The edits are sorted, and do not
    overlap.
    """

    def __init__(self, edits: Sequence[Edit]) -> None:
        """Store the edits and their offsets. `starts` and `ends` are the offsets of the inserted texts in the text
        after the edits. `shifts[n]` is the number of characters by which the first n edits make the text longer.
        """
        self.edits = edits
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.shifts = [0]
        for edit in edits:
            self.starts.append(edit.span.start + self.shifts[-1])
            self.ends.append(self.starts[-1] + len(edit.text))
            self.shifts.append(self.ends[-1] - edit.span.end)

    def around(self, edits: Sequence[Edit]) -> list[int]:
        """The indices of those stored edits whose inserted text contains all of `edits`, which change the text after
        the stored edits.
        """
        first, last = min(each.span.start for each in edits), max(each.span.end for each in edits)
        number = bisect_right(self.starts, first) - 1
        out: list[int] = []
        while number >= 0 and self.ends[number] >= first:
            if self.starts[number] < self.ends[number] >= last:
                out.append(number)
            number -= 1
        return out

    def original(self, span: Span) -> Span | None:
        """Convert a span of the text after the edits to a span of the text before them. None if an edit changed a part
        of the span.
        """
        before = bisect_left(self.starts, span.end)
        if before and span.start < self.ends[before - 1]:
            return None
        return Span(span.start - self.shifts[before], span.end - self.shifts[before])


def _corrected(one: Diagnostic, edit: Edit, text: str) -> Diagnostic:
    """Return a finding in which `text` replaces the text of the edit `edit`. The finding's help names the new text,
    too.
    """
    if edit not in one.edits:
        return one
    help = one.help.replace(f"`{edit.text}`", f"`{text}`") if one.help else one.help
    return evolve(one, help=help, edits=tuple(Edit(edit.span, text) if each == edit else each for each in one.edits))
