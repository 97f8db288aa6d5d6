"""Write findings as workflow commands of GitHub Actions, one line per finding. GitHub shows the findings next to the
changed lines.

Escaping follows actions/toolkit, packages/core/src/command.ts: `%`, CR and LF everywhere, and in properties also `:`
and `,`. For a span of several lines, GitHub ignores the columns, so the columns are not written.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.render.position import Position, position
from xpc.compiler.render.visible import LONGEST, visible
from xpc.grammar.diagnostic import ERROR, WARNING, Diagnostic

_COMMAND = {ERROR: "error", WARNING: "warning"}


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """One workflow command per line. GitHub shows a finding without a position on the page of the workflow's run."""
    return "".join([_command(diagnostic) + "\n" for diagnostic in diagnostics])


def _command(diagnostic: Diagnostic) -> str:
    properties: dict[str, object] = {}
    text = [diagnostic.message]
    if diagnostic.primary is not None:
        at = position(diagnostic.primary.source, diagnostic.primary.span)
        properties = _where(at)
        text += [diagnostic.primary.text] if diagnostic.primary.text else []
    for label in diagnostic.related:
        at = position(label.source, label.span)
        text.append(f"{at.file}:{at.line}:{at.column}: {label.text}".removesuffix(": "))
    if diagnostic.help is not None:
        text.append(f"help: {diagnostic.help}")
    properties["title"] = f"{diagnostic.code} {diagnostic.slug}"
    shortened = [part if len(part) <= LONGEST else part[:LONGEST] + "..." for part in text]
    options = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{_COMMAND.get(diagnostic.severity, 'notice')} {options}::{_data(chr(10).join(shortened))}"


def _where(at: Position) -> dict[str, object]:
    if at.line != at.end_line:
        return {"file": at.file, "line": at.line, "endLine": at.end_line}
    return {"file": at.file, "line": at.line, "endLine": at.line, "col": at.column, "endColumn": at.end_column}


def _data(text: str) -> str:
    # line ends are escaped as workflow commands require, and other unprintable characters as in all formats
    return visible(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
