"""Write findings as SARIF 2.1.0 (OASIS), for code scanning services and editors.

A silenced finding gets a suppression (3.35), so that viewers hide the finding. The kind of the suppression is
`inSource`, and its justification is the reason that the comment in the spec gives. The log contains no time, host or
directory, so the same findings give the same bytes. The name of a file stays as it was given: a relative name is a
relative reference, and an absolute name becomes a `file:` URI.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from xpc.compiler import __version__
from xpc.compiler.render.position import position
from xpc.compiler.render.visible import in_json
from xpc.grammar.diagnostic import ERROR, NOTE, WARNING, Diagnostic, Label, Silenced
from xpc.grammar.source import Source, Span

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def render(diagnostics: Sequence[Diagnostic], silenced: Sequence[Silenced] = ()) -> str:
    """The SARIF log of one check. The log lists only the rules that have findings, sorted by code."""
    slugs: dict[str, str] = {}
    for diagnostic in (*diagnostics, *(one.finding for one in silenced)):
        slugs.setdefault(diagnostic.code, diagnostic.slug)
    codes = sorted(slugs)
    rules = [{"id": code, "name": slugs[code]} for code in codes]
    run = {
        "tool": {"driver": {"name": "xpc", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [
            *(_result(diagnostic, codes.index(diagnostic.code)) for diagnostic in diagnostics),
            *(_suppressed(one, codes.index(one.finding.code)) for one in silenced),
        ],
    }
    return in_json(json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)) + "\n"


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, object]:
    text = diagnostic.message if diagnostic.help is None else f"{diagnostic.message}\nhelp: {diagnostic.help}"
    result: dict[str, object] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity if diagnostic.severity in (ERROR, WARNING, NOTE) else "none",
        "message": {"text": text},
    }
    if diagnostic.primary is not None:
        result["locations"] = [_location(diagnostic.primary)]
    if diagnostic.related:
        result["relatedLocations"] = [{"id": i, **_location(label)} for i, label in enumerate(diagnostic.related, 1)]
    if diagnostic.primary is not None and diagnostic.edits:
        source = diagnostic.primary.source
        replacements = [
            {"deletedRegion": _region(source, edit.span), "insertedContent": {"text": edit.text}}
            for edit in diagnostic.edits
        ]
        change = {"artifactLocation": {"uri": uri(source.name)}, "replacements": replacements}
        description = diagnostic.help or diagnostic.message
        result["fixes"] = [{"description": {"text": description}, "artifactChanges": [change]}]
    return result


def _suppressed(one: Silenced, rule: int) -> dict[str, object]:
    suppression = {"kind": "inSource", "justification": one.reason, "location": _location(one.location)}
    return {**_result(one.finding, rule), "suppressions": [suppression]}


def _location(label: Label) -> dict[str, object]:
    physical = {
        "artifactLocation": {"uri": uri(label.source.name)},
        "region": _region(label.source, label.span),
    }
    location: dict[str, object] = {"physicalLocation": physical}
    if label.text:
        location["message"] = {"text": label.text}
    return location


def _region(source: Source, span: Span) -> dict[str, object]:
    # SARIF's endColumn is exclusive (3.30.8), like `end_column`.
    at = position(source, span)
    return {"startLine": at.line, "startColumn": at.column, "endLine": at.end_line, "endColumn": at.end_column}


def uri(name: str) -> str:
    """The name of a file as a URI reference (RFC 3986). If the name is not UTF-8, its bytes are kept."""
    # Python writes each byte of a name that is not UTF-8 as a surrogate U+DC80..U+DCFF; any other surrogate stands for
    # no byte
    try:
        data = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = name.encode("utf-8", "surrogatepass")
    quoted = "".join([chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in data])
    return f"file://{quoted}" if quoted.startswith("/") else quoted
