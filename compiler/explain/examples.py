"""An example of every setting, a line of a spec or several: what docs/reference.md and `xpc explain SETTING` show."""

from __future__ import annotations

from xpc.compiler.language.kinds import BLOCK
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.tables import examples
from xpc.compiler.suggest.typed_form import typed


def example(row: Setting) -> str:
    """Lines of a spec that write the setting; empty of one that is never legal or not there yet."""
    if row.pending or row.path == "strategy.activation_checkpointing":
        return ""
    line = examples().get(row.path)
    if line is None:
        alone = row.inner or row.head or row.kind is BLOCK
        line = typed(row, None) if alone else f"{row.clause}({typed(row, None)})"
    return line
