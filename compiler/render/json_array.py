"""Write findings for programs, as a JSON array with one object per finding.

Lines and columns count from 1, and columns count code points. `end_line` and `end_column` are the end of the span;
`end_column` is exclusive. A finding without a position has no label, and its `file`, lines and columns are null.
`related` are the other positions of a conflict. `edits` are replacements in `file` that fix the problem if all of them
are made. Nothing is shortened. The text is ASCII with JSON's escapes, so it works in any locale.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from xpc.compiler.render.position import position
from xpc.compiler.render.visible import in_json
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.source import Source, Span


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """The JSON array and a newline; `[]` without findings."""
    return in_json(json.dumps([_object(diagnostic) for diagnostic in diagnostics], indent=2)) + "\n"


def _object(diagnostic: Diagnostic) -> dict[str, object]:
    primary = diagnostic.primary
    where: dict[str, object] = dict.fromkeys(("file", "line", "column", "end_line", "end_column"))
    edits: list[dict[str, object]] = []
    if primary is not None:
        where = {"file": primary.source.name, **_region(primary.source, primary.span)}
        edits = [{**_region(primary.source, edit.span), "text": edit.text} for edit in diagnostic.edits]
    return {
        "code": diagnostic.code,
        "slug": diagnostic.slug,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        **where,
        "label": (primary.text or None) if primary is not None else None,
        "help": diagnostic.help,
        "related": [
            {"file": label.source.name, **_region(label.source, label.span), "label": label.text or None}
            for label in diagnostic.related
        ],
        "edits": edits,
    }


def _region(source: Source, span: Span) -> dict[str, object]:
    at = position(source, span)
    return {"line": at.line, "column": at.column, "end_line": at.end_line, "end_column": at.end_column}
