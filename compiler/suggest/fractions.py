"""Findings for fractions in a setting that takes a count or a share. Loaded only for a wrong spec."""

from __future__ import annotations

from xpc.compiler.language.codes import report
from xpc.compiler.language.schema import Setting
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve
from xpc.grammar.tree import Number

_NOUNS = {
    "rows_or_share": ("row", "of the rows"),
    "steps_or_share": ("step", "of the run"),
    "every": ("step", "of the run"),
}


def fraction(row: Setting, node: Number, at: Label) -> Diagnostic:
    """The finding for `take = 1.0`, `warmup = 0.03` or `holdout = 2.5`, which could be a count or a share."""
    noun, total = _NOUNS[row.kind.name]
    value, name = node.value, row.name
    below = value < 1
    share = f"{name} = {value * 100:g}%" if value <= 1 else f"{name} = {value:g}%" if value < 100 else ""
    share = "" if name == "holdout" and value == 1 else share  # something must be left to train on
    count = f"{name} = {max(1, round(value))}"
    if below:
        help = f"write `{share}` for a share {total}; {noun}s are counted in whole numbers, from `{count}`"
    else:
        help = f"write `{count}`, for {noun}s are whole numbers" + (
            f", or `{share}` for a share {total}" if share else ""
        )
    message = f"`{node.text[:40]}` may be a number of {noun}s or a share {total}"
    edits = (Edit(node.span, f"{value * 100:g}%"),) if below else ()
    return report("XP105", message, evolve(at, text=f"expected {row.kind.phrase}"), help=help, edits=edits)
