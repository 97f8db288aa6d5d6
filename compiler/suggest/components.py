"""Names with dots, as Hydra and nested files have them: `actor_rollout_ref.rollout.n`, `trainer.nnodes`.

What a setting is called is the end of such a name; what stands before it is the component that reads it. Loaded only
for a misspelt spec.
"""

from __future__ import annotations

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.suggest.extra_form import passed
from xpc.compiler.suggest.meaning import meaning
from xpc.compiler.suggest.no_equivalent import advice, own_reason
from xpc.grammar.record import evolve
from xpc.grammar.tree import Ref

GENERAL = (
    "name", "path", "type", "n", "id", "dir", "size", "kind", "value", "enabled", "enable", "config", "mode", "version",
    "file", "files", "model", "data", "steps", "every", "class_path", "target", "format", "level", "device",
)  # fmt: skip
"""Last words that mean something only behind the one before them."""


CLASSES = ("_component_", "class_path", "_target_", "class", "cls", "_class_", "target", "class_name", "classpath")
"""Last words before the class of a component: `optimizer._component_: torch.optim.AdamW`."""


def _by_its_class(said: UnknownName) -> UnknownName | None:
    """A component with its class, where the language has a choice for it; the class without the modules around it."""
    name, _, last = said.name.rpartition(".")
    meant = meaning(name) if last in CLASSES and name and said.node is not None else None
    row = schema.BY_PATH.get(meant.path) if meant is not None else None
    if said.node is None or row is None or not row.choices or row.path == "method":
        return None
    text = (said.typed or "").strip('"').rpartition(".")[2]
    return evolve(said, name=name, typed=text, node=Ref(said.node.span, text))


def by_its_end(said: UnknownName) -> UnknownName | None:
    """What was typed by the longest end of its name that something is called, or None."""
    component = _by_its_class(said)
    if component is not None:
        return component
    parts = said.name.split(".")
    for first in range(1, len(parts)):
        end = ".".join(parts[first:])
        if "." not in end and end in GENERAL:
            return None
        if (
            meaning(end, exact=True) is not None
            or own_reason(end) is not None
            or advice(end, "") is not None
            or passed(end, said.node, said.typed, said.header) is not None
        ):
            return evolve(said, name=end)
    return None
