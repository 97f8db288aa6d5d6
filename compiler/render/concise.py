"""One line per finding: `file:line:col: severity CODE slug: message`, a format that editors and grep understand."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.render.color import Paint
from xpc.compiler.render.position import position
from xpc.compiler.render.visible import LONGEST, visible
from xpc.grammar.diagnostic import Diagnostic


def render(diagnostics: Sequence[Diagnostic], color: bool) -> str:
    """One line per finding. If a finding has no position, its line begins with the severity."""
    paint = Paint(color)
    return "".join([_line(diagnostic, paint) + "\n" for diagnostic in diagnostics])


def _line(diagnostic: Diagnostic, paint: Paint) -> str:
    where = ""
    if diagnostic.primary is not None:
        at = position(diagnostic.primary.source, diagnostic.primary.span)
        where = f"{visible(at.file)}:{at.line}:{at.column}: "
    name = paint.severity(diagnostic.severity, f"{visible(diagnostic.severity)} {visible(diagnostic.code)}")
    return f"{where}{name} {visible(diagnostic.slug)}: {visible(diagnostic.message, LONGEST)}"
