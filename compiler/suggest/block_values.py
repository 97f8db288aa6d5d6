"""Settings without a value, or with a block instead of one: `rewards { accuracy = 1 }`."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.language import schema
from xpc.compiler.suggest.example import example
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, Name, Setting, Value


def missing_value(
    row: schema.Setting, name: Name, body: Sequence[Setting | Clause | Value], span: Span, source: Source
) -> tuple[str, Span, str, str | None]:
    """Message, place, help and edit for a setting without a value, or with a block instead of its value."""
    message = f"`{name.text}` takes one value, not a block" if body else f"`{name.text}` needs a value"
    equals = f"{name.text}{'' if row.head and not body else ' ='}"
    form = f"{equals} {example(row)}"
    if body:
        return message, span, f"a value follows `=`, such as `{form}`", None
    return message, name.span, f"write `{form}`", form if source.slice(name.span) == name.text else None
