"""Convert a written node to a value of the setting's kind, or report what is wrong with it."""

from __future__ import annotations

from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import READERS, Wrong


def convert(row: Setting, item: Item) -> object | Wrong:
    """The value of an item, converted as its row in the table of settings requires."""
    kind = row.kind.name
    try:
        if kind in READERS:
            return READERS[kind](row, item, item.node)
        from xpc.compiler.language import convert_methods  # only methods and adapters have these kinds

        return convert_methods.READERS[kind](row, item, item.node)
    except Wrong as wrong:
        return wrong.with_traceback(None)
