"""Drop findings that are only consequences of a misspelt name or a wrong value. This module is imported only for a spec
with such an error.

For example, `hadrware 1 x a100-80gb` is no hardware setting, so the default hardware with 8 GPUs is assumed, and a
second error says that `gbs=1` cannot be divided by 8. To find such consequences, the suggested edits are applied and
the changed text is checked: a finding that it does not have was only a consequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xpc.compiler.rules import FIRST_RULE
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, applied

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


def without_cascades(
    found: Sequence[Diagnostic], name: str, findings: Callable[[str], Sequence[Diagnostic]]
) -> tuple[Diagnostic, ...]:
    """Drop the findings that disappear when the suggested edits are applied.

    `findings` is a function that checks a text and returns its findings. If no finding has an edit, nothing is dropped.
    """
    mistakes = causes(found, name)
    if not mistakes or len(mistakes) == len(found):
        return tuple(found)
    source = mistakes[0].primary.source if mistakes[0].primary is not None else None
    if source is None:
        return tuple(found)
    edits: list[Edit] = [edit for one in mistakes for edit in one.edits]
    remaining = {(one.code, one.message) for one in findings(applied(source.text, edits))}
    return tuple(one for one in found if one in mistakes or one.code == MORE or (one.code, one.message) in remaining)
