"""Read the part of a split that a spec selects, as in `name[train:20%]`, and report illegal parts."""

from __future__ import annotations

import re
from math import isfinite

from xpc.compiler.language.codes import report
from xpc.compiler.language.kinds import COUNT_UNITS
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.tree import Ref

_PART = re.compile(r"([0-9][0-9_]{0,15})(%|[kMB]|Ki|Mi)?")


def part(node: Ref, label: Label) -> tuple[str | None, list[Diagnostic]]:
    """Read the part of a split: `20%`, or `1000` for `[train:1k]`. Returns a pair: for a legal part, the part and an
    empty list; for an illegal part, None and a list with one finding.
    """
    match = None if node.slice is None else _PART.fullmatch(node.slice)
    unit = "" if match is None else match[2] or ""
    count = 0 if match is None else int(match[1].replace("_", "")) * COUNT_UNITS.get(unit, 1)
    if (node.split or "").isdecimal() or count == 0 or (unit == "%" and count > 100):
        return None, [_wrong(node, label)]
    return f"{count}{'%' * (unit == '%')}", []


def _wrong(node: Ref, label: Label) -> Diagnostic:
    """The finding for an illegal part of a split, such as `name[train:0.2]` or `name[1000]`."""
    split, text = node.split or "", node.slice
    forms = f"`[{split}:20%]` for the first fifth of the split, `[{split}:1000]` for the first 1000 rows"
    if text is None:
        message = f"`{split[:40]}` is not the name of a split"
        return _finding(node, label, message, split, f"train:{split}", "for its first rows")
    if split.isdecimal():
        first = f"{label.source.slice(node.span).partition('[')[0]}[train:{text}]"
        edits = () if int(split) else (Edit(node.span, first),)
        message = "a part of a split begins at its first row, and follows the split's name"
        return report("XP140", message, label, help=f"write `{first}` for the first rows", edits=edits)
    quoted, share = f"`{text[:40]}`", text.endswith("%")
    try:
        value = float(text.rstrip("%")) if len(text) < 17 else None
    except ValueError:
        value = None
    if value is None or not isfinite(value):
        message = f"{quoted} is neither a share of a split nor a number of rows"
        return report("XP140", message, label, help=f"write {forms}")
    if share and value > 100:
        help = f"write `[{split}]` for all of it"
        return report("XP140", f"{quoted} is more than the whole split", label, help=help)
    if value <= 0:
        return report("XP140", f"{quoted} of a split selects no rows", label, help=f"write {forms}")
    if value == 1 and not share:
        help = f"write `[{split}:1]` for one row, or `[{split}]` for all of them"
        return report("XP140", f"{quoted} may mean a number of rows or a share of them", label, help=help)
    if share:
        message, why = f"{quoted} is not a whole percentage", "because the datasets library cuts only at whole percents"
        near = f"{max(1, round(value))}%"
    elif value < 1:
        message, why = f"{quoted} is not a whole number of rows; it may be a share of them", "for the share"
        near = f"{max(1, round(value * 100))}%"
    else:
        message, why = f"{quoted} is not a whole number of rows", "because rows are counted in whole numbers"
        near = str(round(value))
    return _finding(node, label, message, text, near, why)


def _finding(node: Ref, label: Label, message: str, typed: str, near: str, why: str) -> Diagnostic:
    """Make a finding about an illegal part of a split, such as `name[train:0.2]`. Its help is the same reference with
    the legal part `near`, such as `20%`, in place of the illegal part `typed`.
    """
    text = label.source.slice(node.span)
    head, _, tail = text.partition("[")
    better = (
        f"{head}[{tail.replace(typed, near, 1) if node.slice is None else tail.replace(':' + typed, ':' + near, 1)}"
    )
    return report("XP140", message, label, help=f"write `{better}`, {why}", edits=(Edit(node.span, better),))
