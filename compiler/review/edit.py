"""Set a value in the text of a spec: replace the written value, add the setting to its clause, or append a clause,
whichever the text allows.
"""

from __future__ import annotations

from xpc.compiler.spec import Spec
from xpc.grammar.parse import parse
from xpc.grammar.source import Source
from xpc.grammar.tree import Call, Clause, Ref


def with_value(text: str, name: str, spec: Spec, path: str, value: str) -> str:
    """Return the text of a spec in which the setting `path` is set to `value`. The value is written as in a spec.
    `name` is the name of the spec's file.

    The caller must check the returned text. If the form of the clause cannot contain the setting, the text does not
    compile.
    """
    found = {str(one): each for one, each in spec.values.items()}.get(path)
    label = None if found is None else found.origin.label
    if label is not None and label.source is spec.source:
        start, end = label.span.start, label.span.end
        stated, equals, _ = text[start:end].partition("=")
        if not equals and isinstance(found.value, bool):  # type: ignore[union-attr]
            if text[end : end + 1] == "(":  # the parentheses contain settings of this flag
                end = text.index(")", end) + 1
            equals = "="
        return f"{text[:start]}{f'{stated.rstrip()} = ' if equals else ''}{value}{text[end:]}"
    setting = f"{path.partition('.')[2]} = {value}"
    location = _location(text, name, path)
    if location is None:
        return f"{text.rstrip()}\n\n{statement(path, value)}\n"
    at, lines = location
    if lines:
        return f"{text[:at]}  {setting}\n{text[at:]}"
    before = text[:at].rstrip()
    comma = "" if before.endswith(("{", "(")) else " " if before.endswith(",") else ", "
    space = " " if text[at] == "}" else ""
    return f"{before}{comma or space}{setting if space else setting.replace(' = ', '=')}{space}{text[at:]}"


def statement(path: str, value: str) -> str:
    """A separate clause with one setting: `optimizer { lr = 2e-5 }`, on three lines."""
    clause, _, name = path.partition(".")
    if clause == "extra trl":
        return f"extra trl {{\n  {name} = {value}\n}}"
    return f"{clause} {{\n  {name} = {value}\n}}" if name else f"{clause} {value}"


def _location(text: str, name: str, path: str) -> tuple[int, bool] | None:
    """Find the place for a new setting of a clause. Returns an offset, and whether each setting of the clause stands on
    its own line. None if the spec has no such clause.

    The offset depends on how the clause is written. For a block over several lines, it is the start of the last line;
    for a block on one line, its `}`; for a call, its `)`.
    """
    clause, _, inside = path.partition(".")
    for one in parse(Source(name, text))[0].statements:
        if not isinstance(one, Clause) or not inside:
            continue
        call = one.head if isinstance(one.head, Call) else next(iter(one.operands), None)
        headed = (
            one.head.name.text if isinstance(one.head, Call) else one.head.name if isinstance(one.head, Ref) else ""
        )
        if headed != clause:
            continue
        if one.block:
            start = text.rfind("\n", 0, one.block.span.end) + 1
            return (start, True) if start > one.block.span.start else (one.block.span.end - 1, False)
        if isinstance(call, Call):
            return call.span.end - 1, False
    return None
