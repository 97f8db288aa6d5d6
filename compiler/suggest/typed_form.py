"""A setting as somebody may type it, with the value that stood behind another name."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import Wrong
from xpc.compiler.suggest.example import example
from xpc.compiler.suggest.legal import answer
from xpc.compiler.suggest.meaning import choice
from xpc.grammar.tree import Count, Number, Value


def value_of(row: Setting, said: UnknownName) -> str:
    """A legal value of a setting: the one that was meant, or an example."""
    return meant_value(row, said) or example(row)


def meant_value(row: Setting, said: UnknownName) -> str | None:
    """The value that was typed where it is legal, the same in the language's form, or None."""
    from xpc.compiler.suggest.converted_values import reworded

    node, text = said.node, (said.typed or "").strip('"')
    if node is None or row.kind is BLOCK:
        return None
    if row.path == "hardware":
        return _machines(node, text)
    value = reworded(row, said.name, node, said.typed or "")
    if value is not None or row.kind.name in ("weighted", "every"):
        return value
    found = convert(row, Item(row.path, node, said.label))
    if not isinstance(found, Wrong):
        return said.typed
    if row.choices:
        yes = text.lower() in ("true", "1", "yes")
        if yes and row.alone:
            return row.alone
        alone = None if yes or text.isdigit() else choice(row, text)  # `zero_stage=2`: a number says it with its name
        return alone or choice(row, f"{said.name} {text}")
    edits = answer(found).edits
    return edits[0].text if edits else None


def _machines(node: Value, text: str) -> str | None:
    """What `hardware` takes: a count of the default GPU for a bare number, or what was typed."""
    if isinstance(node, Number):
        return f"{node.value} x h100-80gb" if isinstance(node.value, int) and 0 < node.value <= 1024 else None
    known = isinstance(node, Count) or text == "cpu" or registry.find_gpu(text) is not None
    return text if known else None


def written(row: Setting, said: UnknownName) -> str:
    """A setting with the value that was typed, or the nearest legal one, as it may be typed outside of a clause."""
    return typed(row, None if said.node is None and row.kind is FLAG else value_of(row, said))


def typed(row: Setting, value: str | None) -> str:
    """A setting as it may be typed anywhere outside of a clause: `gbs=528`, `save(every=100)`."""
    if row.kind is BLOCK:
        return f"{row.name} {{"
    form = row.name if row.kind is FLAG and value in (None, "true") else f"{row.name}={value or example(row)}"
    if row.path.startswith("launch."):
        return f"launch {row.engines[0]}({form})" if row.engines else f"launch({form})"
    if not row.inner:
        return form
    outer = row.path.rpartition(".")[0].split(".")
    for part in reversed(outer):
        form = f"{part}({form})"
    return form.partition("(")[2][:-1] if len(outer) > 1 else form
