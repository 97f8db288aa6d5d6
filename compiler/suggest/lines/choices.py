"""Move a clause's choice from its block to the line of its name: `optimizer { type = adamw }` becomes `optimizer adamw
{ }`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language.schema import BY_PATH
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

ADVICE = re.compile(r"write `(?P<clause>[a-z]+) (?P<choice>[\w.-]+)`")
HEAD = re.compile(r"(?P<clause>[a-z]+)[ \t]*(?=[({])")
FAR = 2000
"""The first line of a setting's block is searched for only in this many characters before the setting."""


def move_choices(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Add an edit to each finding about a clause's choice that stands in the clause's block as a setting."""
    out = list(problems)
    for found in problems:
        advice = None if found.edits or found.primary is None else ADVICE.fullmatch(found.help or "")
        row = None if advice is None else BY_PATH.get(advice["clause"])
        if advice is None or row is None or advice["choice"] not in row.choices:
            continue
        gone = setting_span(found)
        opened = _opened(out, found, advice["clause"])
        if gone is None:
            continue
        if opened is not None:  # another finding already rewrites the first line of the block, such as `"optimizer": {`
            head = Edit(opened.edits[0].span, f"{advice['clause']} {advice['choice']} {{")
            help = f"write `{head.text}`" if opened.help == f"write `{advice['clause']} {{`" else opened.help
            both = (head, *opened.edits[1:], Edit(gone, ""))  # one of the two edits alone would lose the choice
            out[out.index(opened)] = evolve(opened, help=help, edits=both)
            out[out.index(found)] = evolve(found, edits=both)
        elif (at := _head(found, advice["clause"])) is not None:
            edits = (Edit(Span(at, at), f" {advice['choice']}"), Edit(gone, ""))
            out[out.index(found)] = evolve(found, edits=edits)
    return out


def setting_span(found: Diagnostic) -> Span | None:
    """The span to delete in order to remove the setting that a finding is about: its complete line or, if other
    settings are on the line, the setting with its comma. None if the span is unclear.
    """
    if found.primary is None:
        return None
    text, at = found.primary.source.text, found.primary.span.start
    start, end = line_bounds(text, at, at)
    alone = re.compile(r"[ \t]*[\"']?[\w.-]+[\"']?[ \t]*[:=][ \t]*[^\s,{}()#]*[ \t]{0,40},?[ \t]{0,40}(?:#.*)?")
    if alone.fullmatch(text, start, end):
        return Span(start - 1, end) if start else None
    one = re.compile(r"[\w.-]+[ \t]*=[ \t]*[^\s,{}()#]+[ \t]*,[ \t]*").match(text, at, end)
    if one is None and text[start:end].startswith("train "):
        option = re.compile(r"[\w.-]+=(?:\"[^\"]*\"|[^\s,{}()#]+)(?=[ \t]|$)").match(text, at, end)
        before = text[start:at].rstrip()
        # the only option of the first line is removed together with `with`
        only = before.endswith(" with") and option is not None and not text[option.end() : end].strip()
        before = before.removesuffix(" with") if only else before
        follows = text[start:at].rstrip() != text[start:at]
        return None if option is None or not follows else Span(start + len(before.rstrip()), option.end())
    return None if one is None else Span(*one.span())


def _opened(problems: Sequence[Diagnostic], found: Diagnostic, clause: str) -> Diagnostic | None:
    """The finding that rewrites the first line of the block around a setting. None if there is no such finding."""
    assert found.primary is not None
    at, source = found.primary.span.start, found.primary.source
    before = [
        one
        for one in problems
        if one.primary is not None and one.primary.source is source and one.edits and one.primary.span.start < at
        and one.edits[0].text.endswith("{")
    ]  # fmt: skip
    last = before[-1] if before else None
    return last if last is not None and last.edits[0].text == f"{clause} {{" else None


def _head(found: Diagnostic, clause: str) -> int | None:
    """Find the first line of the block that contains a setting, and return the position after the clause's name in this
    line. None if the block belongs to another clause, or already has a choice.
    """
    assert found.primary is not None
    text, at = found.primary.source.text, found.primary.span.start
    depth = 0
    for index in range(at - 1, max(0, at - FAR) - 1, -1):
        if text[index] in "{(":
            if depth == 0:
                start, _ = line_bounds(text, index, index)
                heads = [one for one in HEAD.finditer(text, start, index + 1) if one.end() == index]
                return heads[-1].end("clause") if heads and heads[-1]["clause"] == clause else None
            depth -= 1
        elif text[index] in "})":
            depth += 1
    return None
