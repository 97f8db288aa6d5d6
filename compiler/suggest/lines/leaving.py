"""Remove lines that have no effect, because the run does the same without them: `eval_strategy: steps` next to
`eval_steps: 100`, and `resume_from_checkpoint: null`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language.kinds import FLAG
from xpc.compiler.language.schema import ADAPTERS, TABLE, children
from xpc.compiler.suggest.lines.choices import setting_span
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve

LEAVE = re.compile(r"leave (?:it|`[\w.-]+`) out: (?!.*(?:\bwrite\b|no equivalent|no similar|names no class|;)).*")
"""Matches a help that only advises to leave a setting out. It does not match a help that also says what to write
instead, or that xpc lacks something.
"""
OFF = re.compile(r"(?P<head>\w+)\((?!reentrant)\w+(?:=false| = false|=never|=none)\)")
"""A pattern for a switch of a block, turned off: `lora(dora=false)`. `reentrant=false` switches nothing off: it chooses
an implementation.
"""


def leave_out(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """If the help of a finding says to leave a setting out, because the run does the same without it, add an edit that
    removes the setting.
    """
    out: list[Diagnostic] = []
    for one in problems:
        off = _is_off_anyway(one, problems)
        gone = setting_span(one) if off or (not one.edits and LEAVE.fullmatch(one.help or "")) else None
        help = "leave it out: it is off" if off else one.help
        out.append(one if gone is None else evolve(one, help=help, edits=(Edit(gone, ""),)))
    return out


def _is_off_anyway(found: Diagnostic, problems: Sequence[Diagnostic]) -> bool:
    """Whether a finding's edit must be dropped, because it would add a block only to turn one of its switches off: the
    edit `lora(dora=false)` for `use_dora = false` would turn LoRA on.
    """
    form = OFF.fullmatch(found.edits[0].text.strip()) if len(found.edits) == 1 else None
    if form is None or found.primary is None or form["head"] not in (*SWITCHES, *ADAPTERS):
        return False
    text = found.primary.source.text
    names = "|".join(ADAPTERS) if form["head"] in ADAPTERS else form["head"]
    head = re.compile(rf"(?<![\w.])(?:{names})(?![\w.])")
    # findings that also turn off a switch of the block do not make the block necessary
    others = [edit.text for one in problems if one is not found for edit in one.edits]
    others = [one for one in others if OFF.fullmatch(one.strip()) is None]
    return not any(head.search(one) for one in (text, *others))


SWITCHES = frozenset(row.name for row in TABLE if row.kind is FLAG and any(children(row.path)))
"""The names of the switches that have a block, such as `packing`."""
