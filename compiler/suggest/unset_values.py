"""Values that leave a setting unset, or switch it off: `rank = None`, `keep = all`, `clip = none`. Imported only for a
wrong spec.
"""

from __future__ import annotations

from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.typed import show
from xpc.compiler.suggest.converted_values import NO
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.lines.choices import setting_span
from xpc.compiler.suggest.lines.notations import NUMBERS
from xpc.compiler.suggest.tables import already, mapped, unset
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.tree import Value

NULLS = ("none", "null", "nil", "~")
"""Words that people write for "no value", in lower case."""
ALREADY = {(path, value): help for path, (help, *values) in already().items() for value in values}
"""Maps a setting and a value that changes nothing to the advice to leave the setting out."""
SWITCHED_OFF = (*NO, "zero", "nil", "without")
"""Values of other tools that switch a setting off, such as `clip = none`."""


def null_value(row: Setting, item: Item, node: Value | None, at: Label) -> tuple[str, tuple[Edit, ...]] | None:
    """The help for `None` or `null` as a value, and the edit that removes the setting. None for any other value, and
    for a setting such as `clip`, which `None` switches off.
    """
    text = "" if node is None or node is not item.node else item.label.source.slice(node.span)
    typed = text.strip('"').lower()
    off = row.path in (*mapped("off"), "save", "schedule") or row.kind.name == "every"
    off = off or (row.kind.name == "flag" and row.default is not None)
    nothing = known_choice(row, "none")
    if typed not in NULLS or off or (nothing is not None and typed == "none"):
        return None
    if "none" in row.choices and node is not None:
        return "write `none`", (Edit(node.span, "none"),)
    span = setting_span(Diagnostic("", "", "error", "", at))
    return f"leave `{row.name}` out: `{text}` sets nothing", () if span is None else (Edit(span, ""),)


def unset_advice(row: Setting, typed: str) -> str:
    """The help for `auto`, or for a word such as `all` that leaves a setting unset in other tools. "" for any other
    value.
    """
    advice, *words = unset().get(row.path, [""])
    if typed in words or ("/" in words and "/" in typed) or (advice and typed in ("auto", "default")):
        return advice
    own = row.kind.name in (*NUMBERS, "text_or_file") and row.kind.name != "every"
    if own and row.path not in mapped("off") and row.default is None and typed in NO and typed.isalpha():
        return f"leave `{row.name}` out: `{typed}` sets nothing"
    return "" if typed not in ("auto", "default") or row.choices else leave_out(row)


def leave_out(row: Setting) -> str:
    """The advice to leave a setting out. The setting then gets its default, or the value that xpc chooses."""
    if row.default is not None:
        return f"leave `{row.name}` out: its default is {show(row, row.default)}"
    text = row.kind.name in ("path", "name", "names", "text", "text_or_file", "file", "repository")
    return f"leave `{row.name}` out" + ("" if text else ": xpc chooses the value, and prints it")
