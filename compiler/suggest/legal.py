"""What to write instead of a wrong value: what was meant by it, or what is legal. Loaded only for a wrong spec."""

from __future__ import annotations

import re

from xpc.compiler.language.codes import report
from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import Wrong
from xpc.compiler.suggest.converted_values import bounds, reworded, told
from xpc.compiler.suggest.converted_values import legal as in_words
from xpc.compiler.suggest.example import example
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.tree import Call, Number, Ref, String, Value

LOST_SIGN = re.compile(r"(\d+(?:\.\d+)?)[eE]\+?(\d+)")


def answer(wrong: Wrong) -> Diagnostic:
    """The finding of a wrong value, with what to write instead."""
    row, item, node, text = wrong.row, wrong.item, wrong.node, wrong.text
    at = Label(item.label.source, item.label.span if node is None else node.span, text)
    if wrong.kind == "told":
        return report(wrong.code, wrong.message, at, help=wrong.help)
    if wrong.kind == "choice" and isinstance(node, Ref):
        return _choice(wrong, row, node, at)
    if wrong.kind == "fraction" and isinstance(node, Number):
        from xpc.compiler.suggest.fractions import fraction

        return fraction(row, node, at)
    if wrong.kind == "bounds":
        at = Label(at.source, at.span, f"a number{bounds(row) or ' that is finite and below 2^63'}")
    value = wrong.value or meant(row, item, node)
    part = item.node if row.kind.name == "reals" else node  # of a list, the list is named
    edits = (Edit(part.span, value),) if value and wrong.edit and part is not None and part is item.node else ()
    help = f"write `{_form(row, value)}`" if value else legal(row, item, node)
    return report(wrong.code, wrong.message, at, help=wrong.help or help, edits=edits)


def _choice(wrong: Wrong, row: Setting, node: Ref, at: Label) -> Diagnostic:
    from xpc.compiler.suggest.meaning import choice

    near = choice(row, node.name)
    return report(
        wrong.code,
        wrong.message,
        Label(at.source, at.span, f"did you mean `{near}`?" if near else ""),
        help=f"write `{near}`" if near else "write one of " + ", ".join(row.choices),
        edits=(Edit(node.span, near),) if near else (),
    )


def _form(row: Setting, value: str) -> str:
    """A setting as it is typed where it stands."""
    if row.path in ("train.epochs", "train.steps"):
        return f"for {value} {row.name}"
    return f"{row.name} {value}" if row.head else f"{row.name} = {value}"


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


def legal(row: Setting, item: Item, node: Value | None) -> str:
    """What is legal, in words; of a value that is of another kind, with an example."""
    typed = "" if node is None else item.label.source.text[node.span.start : node.span.end]
    if isinstance(node, Number):
        words = told(row, row.name, typed)
        return f"write {words}" if words.startswith(("a ", "an ", "one of ")) else words
    return f"`{row.name}` takes {in_words(row)}, such as `{_form(row, example(row))}`"
