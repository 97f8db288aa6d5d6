"""A legal value to type instead of a wrong one. Loaded only for a wrong spec."""

from __future__ import annotations

from xpc.compiler.items import Item
from xpc.compiler.misnamed import example
from xpc.compiler.schema import Setting
from xpc.grammar.tree import Call, Number, Ref, String, Value

YES, NO = ("yes", "on", "1", "enabled", "enable", "y", "t"), ("no", "off", "0", "disabled", "disable", "none", "n", "f")
NUMBERS = ("int", "tokens", "real", "steps_or_share", "real_or_share", "every", "rows_or_share")
NAMED = ("text", "file", "template", "text_or_file", "name", "repository", "names", "tasks", "weighted", "targets")
"""Kinds whose example stands for something that only the author knows."""


def legal(row: Setting, item: Item, node: Value | None) -> tuple[str, bool]:
    """The value to write, and whether it can be put in place of what was typed: an example of a file cannot."""
    typed = "" if node is None else item.label.source.text[node.span.start : node.span.end]
    meant = None if node is None else _meant(row, node, typed)
    if meant is not None:
        return meant, True
    return example(row), row.kind.name not in NAMED


def _meant(row: Setting, node: Value, typed: str) -> str | None:
    """What was typed in the form of the setting's kind, or None."""
    kind = row.kind.name
    plain = node.value if isinstance(node, String) else typed
    if kind == "flag" and isinstance(node, Ref | String | Number):
        said = plain.lower()
        return "true" if said in (*YES, "true") else "false" if said in (*NO, "false") else None
    if kind in NUMBERS and isinstance(node, String) and _is_number(plain):
        return plain
    if kind in ("text", "path", "name", "text_or_file") and isinstance(node, Ref | Number):
        return f'"{typed}"'
    if kind == "template" and isinstance(node, String) and plain in row.choices:
        return plain
    if kind in ("file", "template") and isinstance(node, String):
        return f"file({typed})"
    if kind in ("file", "template") and isinstance(node, Ref):
        return f'file("{typed}")'
    if (
        kind in ("file", "template")
        and isinstance(node, Call)
        and len(node.args) == 1
        and isinstance(node.args[0], Ref)
    ):
        return f'file("{node.args[0].name}")'
    if kind in ("names", "tasks") and isinstance(node, Ref | String):
        return f"[{typed}]"
    return None


def _is_number(text: str) -> bool:
    """Whether a text is a number as the language writes it, perhaps with a unit."""
    number = text.strip().rstrip("%kMBi").replace("_", "")
    try:
        float(number)
    except ValueError:
        return False
    return number[:1].isdigit() and len(text) <= 40 and " " not in text
