"""Blocks where a value stands: `rewards { accuracy = 1, format = 0.5 }` is a list of both.

Loaded only for a wrong spec.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.values import Wrong
from xpc.compiler.suggest.converted_values import NUMBER
from xpc.compiler.suggest.example import example
from xpc.compiler.suggest.typed_form import meant_value
from xpc.grammar.diagnostic import Label
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, Name, Number, Ref, Setting, String, Value

LISTS = ("weighted", "names", "choices", "targets", "tasks", "sources")


def missing_value(
    row: schema.Setting, name: Name, body: Sequence[Setting | Clause | Value], span: Span, source: Source
) -> tuple[str, Span, str, str | None]:
    """What to say of a setting alone, or with a block instead of its value: message, place, help and edit."""
    value = listed(row, body, source) if body else None
    message = f"`{name.text}` takes one value, not a block" if body else f"`{name.text}` needs a value"
    equals = f"{name.text}{'' if row.head and not body else ' ='}"
    form = f"{equals} {value or example(row)}"
    if value is None and body:
        return message, span, f"a value stands behind `=`, such as `{form}`", None
    stands = bool(body) or source.slice(name.span) == name.text
    return message, span if body else name.span, f"write `{form}`", form if stands else None


def listed(row: schema.Setting, body: Sequence[Setting | Clause | Value], source: Source) -> str | None:
    """The value of a setting that a block of its parts means, or None."""
    if row.kind.name not in LISTS:
        return _of_one(row, body, source)

    parts: list[str] = []
    for one in body:
        if isinstance(one, Setting) and isinstance(one.value, Number) and row.kind.name == "weighted":
            parts.append(f"{one.name.text}(weight={source.slice(one.value.span)})")
        elif (
            isinstance(one, Setting) and isinstance(one.value, String | Ref) and source.slice(one.value.span) != "true"
        ):
            parts.append(source.slice(one.value.span))
        elif isinstance(one, Setting):
            parts.append(one.name.text)
        elif isinstance(one, Clause) and one.block is not None and isinstance(one.head, Ref) and not one.operands:
            inner = ", ".join(source.slice(part.span) for part in one.block.statements)
            parts.append(f"{one.head.name}({inner})")
        elif isinstance(one, Clause) and one.operands:
            return None
        else:
            parts.append(source.slice(one.head.span if isinstance(one, Clause) else one.span))
    return f"[{', '.join(parts)}]" if parts else None


def _of_one(row: schema.Setting, body: Sequence[Setting | Clause | Value], source: Source) -> str | None:
    """The value of a setting that is no list: `warmup { ratio = 0.03 }`, or both numbers of a pair."""
    typed = [source.slice(one.value.span) for one in body if isinstance(one, Setting)]
    if row.kind.name == "reals":
        return f"[{', '.join(typed)}]" if len(typed) == len(body) == 2 and all(map(NUMBER.fullmatch, typed)) else None
    one = body[0] if len(body) == 1 else None
    if not isinstance(one, Setting):
        return None
    label = Label(source, one.span)
    value = meant_value(row, UnknownName(f"{row.name}_{one.name.text}", None, one.value, typed[0], label))
    wrong = value == typed[0] and isinstance(convert(row, Item(row.path, one.value, label)), Wrong)
    return None if wrong else value
