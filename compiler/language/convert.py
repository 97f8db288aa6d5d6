"""Convert the syntax node of a value to a Python value: `10%` to `Amount("share", 0.1)`. Illegal values give a
`Wrong`.
"""

from __future__ import annotations

from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import READERS, Wrong


def convert(row: Setting, item: Item) -> object | Wrong:
    """The Python value of an item, converted to the kind that the table of settings states for its path. Returns a
    `Wrong` if the value is illegal.
    """
    kind = row.kind.name
    try:
        if kind in READERS:
            return READERS[kind](row, item, item.node)
        # imported only for kinds of values that settings of methods and adapters have
        from xpc.compiler.language import convert_methods

        return convert_methods.READERS[kind](row, item, item.node)
    except Wrong as wrong:
        return wrong.with_traceback(None)
