"""Render findings as text. Each format has its own module, which is imported only when it is needed, so that commands
start fast.

All formats get the same list of findings, without duplicates and sorted by file, line, column and severity. The notes
of a file come after its errors and warnings. Findings without a position come last, in the order in which they were
found. Silenced findings are left out, except in SARIF, which has a field for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.files.secrets import masked, suspect, without_secrets
from xpc.compiler.render.position import labels, ordered
from xpc.grammar.diagnostic import Diagnostic, Silenced
from xpc.grammar.record import evolve


def render(
    diagnostics: Sequence[Diagnostic], format: str, *, color: bool = False, silenced: Sequence[Silenced] = ()
) -> str:
    """Render findings in a format. Returns "" or a text that ends with a newline.

    `color` adds ANSI colours to the formats `full` and `concise`. Raises ValueError for an unknown format.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    found = ordered(diagnostics)
    if _may_hold_secrets((*found, *(one.finding for one in silenced))):
        found = without_secrets(found)
        hidden = without_secrets(one.finding for one in silenced)
        silenced = [
            evolve(one, finding=finding, reason=masked(one.reason))
            for one, finding in zip(silenced, hidden, strict=True)
        ]
    if format == "full":
        from xpc.compiler.render import full

        return full.render(found, color)
    if format == "concise":
        from xpc.compiler.render import concise

        return concise.render(found, color)
    if format == "json":
        from xpc.compiler.render import json_array

        return json_array.render(found)
    if format == "github":
        from xpc.compiler.render import github

        return github.render(found)
    from xpc.compiler.render import sarif

    return sarif.render(found, silenced)


def _may_hold_secrets(found: Sequence[Diagnostic]) -> bool:
    if any(one.code in ("XP791", "XP911") for one in found):
        return True
    locations = [label for one in found for label in labels(one)]
    texts = {one.message for one in found} | {one.help or "" for one in found} | {label.text for label in locations}
    return any(suspect(text) for text in (*texts, *{label.source.text for label in locations}))


FORMATS = ("full", "concise", "json", "github", "sarif")
"""The formats that `--format` accepts. For each there is a module in `xpc.compiler.render`."""
