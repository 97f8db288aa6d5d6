"""What to write instead of a wrong value: what was meant by it, or what is legal. Loaded only for a wrong spec."""

from __future__ import annotations

import re
from collections.abc import Callable

from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.converted_values import legal as in_words
from xpc.compiler.suggest.converted_values import reworded, told
from xpc.compiler.suggest.misplaced import example
from xpc.grammar.tree import Call, Number, Ref, String, Value

LOST_SIGN = re.compile(r"(\d+(?:\.\d+)?)[eE]\+?(\d+)")


def meant(row: Setting, item: Item, node: Value | None) -> str | None:
    """What was typed in the form of the setting's kind, or None."""
    if node is None:
        return None
    typed = item.label.source.text[node.span.start : node.span.end]
    kind = row.kind.name
    sign = LOST_SIGN.fullmatch(typed)
    if isinstance(node, Number):
        small = sign and row.high is not None and row.low is not None and float(f"{sign[1]}e-{sign[2]}") <= row.high
        return f"{sign[1]}e-{sign[2]}" if sign and small and kind == "real" else None
    if kind == "template" and isinstance(node, String) and node.value in row.choices:
        return node.value
    if kind in ("file", "template"):
        inner = node.args[0] if isinstance(node, Call) and len(node.args) == 1 else node if kind == "template" else None
        if isinstance(node, String):
            return f"file({typed})"
        return f'file("{inner.name}")' if isinstance(inner, Ref) else None
    if kind in ("names", "tasks") and isinstance(node, Ref | String):
        return f"[{typed}]"
    if kind in ("choice", "choices") and isinstance(node, String):
        from xpc.compiler.suggest.meaning import choice

        return node.value if node.value in row.choices else choice(row, node.value)
    if kind == "repository":
        return None
    found = reworded(row, row.name, node, typed)
    return None if found == typed else found


def legal(row: Setting, item: Item, node: Value | None, form: Callable[[Setting, str], str]) -> str:
    """What is legal, in words; of a value that is of another kind, with an example."""
    typed = "" if node is None else item.label.source.text[node.span.start : node.span.end]
    if isinstance(node, Number):
        words = told(row, row.name, typed)
        return f"write {words}" if words.startswith(("a ", "an ", "one of ")) else words
    return f"`{row.name}` takes {in_words(row)}, such as `{form(row, example(row))}`"
