"""Convert the syntax node of a value to a Python value: `10%` becomes `Amount("share", 0.1)`. An illegal value becomes
an `InvalidValue`.
"""

from __future__ import annotations

from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import READERS, InvalidValue


def convert(row: Setting, item: Item) -> object | InvalidValue:
    """Convert the syntax node of an item's value to a Python value. The table of settings states the kind of value for
    the item's path. An illegal value becomes an `InvalidValue`.
    """
    kind = row.kind.name
    try:
        if kind in READERS:
            return READERS[kind](row, item, item.node)
        # imported here, because only settings of methods and adapters have these kinds of values
        from xpc.compiler.language import convert_methods

        return convert_methods.READERS[kind](row, item, item.node)
    except InvalidValue as wrong:
        return wrong.with_traceback(None)
