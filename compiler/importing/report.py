"""The report of an import: a list of messages for people, or JSON for programs, which states how each key was handled
and which defaults were written to the spec.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.outcomes import KeyOutcome
from xpc.compiler.render.visible import visible
from xpc.grammar.diagnostic import Diagnostic

FORMAT = 1


def as_json(draft: Draft, spec: str, output: str, errors: Sequence[Diagnostic] = ()) -> str:
    """The report for `--report json`. `keys` says how each key was handled, `defaults` lists the settings that come
    from a default of the tool, and `check` lists the errors that `xpc check` finds in the spec.
    """
    return json.dumps({
        "format": FORMAT,
        "output": output,
        "target": draft.stack.name,
        "method": draft.method,
        "ok": not draft.wrong and not draft.decisions and not errors,
        "counts": dict(sorted(Counter(one.outcome for one in draft.outcomes.values()).items())),
        "keys": [
            {"key": one.key, "value": one.value, "file": one.file, "line": one.line, "fate": one.outcome, "to": one.to,
             "why": one.why}
            for one in sorted(draft.outcomes.values(), key=lambda one: (one.file, one.line, one.key))
        ],
        "defaults": [{"to": one.to, "why": one.why} for one in _defaults(draft)],
        "differences": draft.differences,
        "decisions": [{"text": one.text, "places": one.locations, "help": one.help} for one in draft.decisions],
        "messages": [
            {"severity": one.severity, "place": one.location, "message": one.text, "help": one.help}
            for one in draft.messages
        ],
        "check": [
            {"code": one.code, "message": one.message, "line": _line(one), "help": one.help} for one in errors
        ],
        "files": sorted(draft.files),
        "spec": spec,
    }, indent=1) + "\n"  # fmt: skip


def _defaults(draft: Draft) -> list[KeyOutcome]:
    """The defaults of the imported tool that were written to the spec, without repetitions. A default that a key of the
    file has overridden is omitted.
    """
    written = {path: one.text for path, one in draft.settings.items() if one.entry is None}
    stated = {path for path, one in draft.settings.items() if one.entry is not None}
    found: list[KeyOutcome] = []
    for one in dict.fromkeys(draft.defaults):
        path, _, text = one.to.partition(" = ")
        if path not in stated and written.get(path, text) == text:
            found.append(one)
    return found


def _line(one: Diagnostic) -> int | None:
    return None if one.primary is None else one.primary.source.position(one.primary.span.start)[0]


def as_text(draft: Draft, every: bool = False) -> str:
    """The messages of an import, one per line. With `every` (`--report text`), one line for each key precedes them."""
    out = []
    if every:
        for one in sorted(draft.outcomes.values(), key=lambda one: (one.file, one.line, one.key)):
            tail = "; ".join(part for part in (one.to, one.why) if part)
            out.append(f"{one.file}:{one.line}: {one.key}: {one.outcome}" + (f": {tail}" if tail else ""))
        out += [f"default: {one.to}" + (f" ({one.why})" if one.why else "") for one in _defaults(draft)]
    for message in draft.messages:
        location = f"{message.location}: " if message.location else ""
        out.append(
            f"{location}{message.severity}: {message.text}" + (f" (help: {message.help})" if message.help else "")
        )
    return "".join(f"{visible(line)}\n" for line in out)
