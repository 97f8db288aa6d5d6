"""Make an example for every setting, as lines of a spec. docs/reference.md and `xpc explain SETTING` print it."""

from __future__ import annotations

from xpc.compiler.language.kinds import BLOCK
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.tables import examples
from xpc.compiler.suggest.typed_form import typed
from xpc.grammar.record import evolve

NEEDED = {"method.rewards": "rewards=accuracy", "method.teacher": "teacher=qwen2.5-1.5b-instruct"}
"""Maps a setting that some method requires to a text that sets it. Examples of other settings of this method contain
the text too, because they would not compile without it: `method grpo(rewards=accuracy, beta=0.04)`.
"""


def example(row: Setting) -> str:
    """Lines of a spec that contain the setting. "" for a setting that no spec can contain."""
    if row.path == "strategy.activation_checkpointing":
        return ""
    line = examples().get(row.path)
    if line is None and row.path.startswith("method.") and row.path.count(".") == 1:
        method = METHODS[row.methods[0]]
        needed = [text for path, text in NEEDED.items() if path in method.paths and path != row.path]
        return f"method {method.name}({', '.join([*needed, typed(evolve(row, inner=False), None)])})"
    if line is None:
        alone = row.inner or row.head or row.kind is BLOCK
        line = typed(row, None) if alone else f"{row.clause}({typed(row, None)})"
    return line
