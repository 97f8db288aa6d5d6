"""Remove lines that have no effect, because the run does the same without them: `eval_strategy: steps` next to
`eval_steps: 100`, and `resume_from_checkpoint: null`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.suggest.lines.choices import setting_span
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve

LEAVE = re.compile(r"leave (?:it|`[\w.-]+`) out: (?!.*(?:\bwrite\b|no equivalent|no similar|names no class|;)).*")
"""Matches a help that only advises to leave a setting out. It does not match a help that also says what to write
instead, or that xpc lacks something.
"""


def leave_out(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """If the help of a finding says to leave a setting out, because the run does the same without it, add an edit that
    removes the setting.
    """
    out: list[Diagnostic] = []
    for one in problems:
        gone = None if one.edits or not LEAVE.fullmatch(one.help or "") else setting_span(one)
        out.append(one if gone is None else evolve(one, edits=(Edit(gone, ""),)))
    return out
