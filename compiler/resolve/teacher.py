"""Find the teacher of a distillation. A spec names a teacher as it names the model in the `train` line: `teacher =
qwen2.5-7b`, or a folder in quotes.
"""

from __future__ import annotations

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.setting import Path
from xpc.compiler.resolve.model import find_model, vocabulary
from xpc.compiler.spec.resources import Model
from xpc.compiler.spec.values import Value
from xpc.compiler.stacks import Stack
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve
from xpc.grammar.tree import Ref, String, quoted

UNKNOWN = "the vocabulary and memory of this teacher are not checked; name a registered model, or a folder that is here"
ADAPTER = "a teacher is a complete model: name its folder, or the `merged` folder that `save(merge)` writes"


def find_teacher(values: dict[Path, Value], stack: Stack, workspace: Workspace, problems: Problems) -> Model | None:
    """Return the teacher in `method.teacher`, or None after an error. The teacher's name becomes the value of this
    setting, as text.
    """
    value = values["method.teacher"]
    node, label = value.value, value.origin.label
    if not isinstance(node, Ref | String) or label is None:
        return None
    model, found = find_model(node, label, None, None, workspace)
    problems += [evolve(one, help=_help(one)) for one in found]
    if isinstance(node, String):
        text = quoted(node.value)
    else:
        text = node.name + (f"@{model.revision}" if model.revision is not None else "")
    values["method.teacher"] = Value(text, value.origin)
    return model if stack.facts.reads_newer_files else evolve(model, vocabulary=vocabulary(model, workspace))


def _help(one: Diagnostic) -> str | None:
    """The help for an unknown teacher. It is the help for an unknown model, but without `model { config = ... }`,
    because a teacher has no such setting.
    """
    if one.code == "XP109":
        return UNKNOWN
    if one.code != "XP118" or one.help is None:
        return one.help
    return ADAPTER if "adapter" in one.message else one.help.partition(", or ")[0].partition("; or ")[0]
