"""The model that a student learns from: named like the header's, and found in the same places."""

from __future__ import annotations

from xpc.compiler.files import Workspace
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.setting import Path
from xpc.compiler.resolve.model import find_model
from xpc.compiler.resources import Model
from xpc.compiler.spec import Value
from xpc.grammar.record import evolve
from xpc.grammar.tree import Ref, String

HELP = {
    "XP109": "its vocabulary and its memory are not checked either; name a registered model, or a folder that is here",
    "XP118": "a local model is a folder with config.json",
}
"""What to do about a teacher of which little is known: it has no `config` of its own."""


def find_teacher(values: dict[Path, Value], workspace: Workspace, problems: Problems) -> Model | None:
    """The teacher that `values` name, which get its name as it is typed. Nothing where its value is in error."""
    value = values["method.teacher"]
    node, label = value.value, value.origin.label
    if not isinstance(node, Ref | String) or label is None:
        return None
    model, found = find_model(node, label, None, None, workspace)
    problems += [evolve(one, help=HELP.get(one.code, one.help)) for one in found]
    if isinstance(node, String):
        text = '"' + node.value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    else:
        text = node.name + (f"@{model.revision}" if model.revision is not None else "")
    values["method.teacher"] = Value(text, value.origin)
    return model
