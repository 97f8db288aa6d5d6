"""Evaluate attributes (`value.name`) and items (`value[key]`)."""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.parsed_classes import defaults
from xpc.compiler.importing.python.interpreter.values import (
    OPEN,
    Argument,
    Bound,
    Class,
    Column,
    Function,
    Instance,
    Name,
    Namespace,
    Object,
    Row,
    Scalar,
    Super,
    Table,
    Text,
    Unknown,
    Unset,
    Words,
)

EACH = Name("<each row>")
"""The value of `i` in a loop such as `for i in range(len(batch["text"]))`, which represents every row of the batch."""


class Members(Table):
    """The value of `object.__dict__` and `vars(object)`. Setting an item of it sets an attribute of the object."""

    def __init__(self, owner: Object | Instance) -> None:
        given = {} if isinstance(owner, Instance) else {name: one.value for name, one in owner.keywords.items()}
        own = {name: one for name, one in owner.attributes.items() if not name.startswith("<")}
        super().__init__({**given, **own}, owner.locations)
        self.owner = owner


def attribute(machine: Machine, value: object, name: str, node: ast.AST) -> object:
    """Evaluate `value.name`."""
    if isinstance(value, Name):
        if value.path == "sys" and name == "argv":
            return machine.command_words(node)
        return functions.attribute(value, name)
    if isinstance(value, Instance):
        return _member(machine, value, name, node)
    if isinstance(value, Super):
        return _above(machine, value, name, node)
    if isinstance(value, Class):
        return _of_class(machine, value, name, node)
    if isinstance(value, Namespace) and name in value:
        return value[name]
    if isinstance(value, Object):
        return _part(machine, value, name, node)
    if isinstance(value, Unknown):
        if name in ("open", "read_text"):  # record that the script reads a file with an unknown name
            machine.calls.append(Object("open", [Argument(value, value.location)], {}, machine.location(node)))
        return Unknown(value.why, value.location, value.hidden)
    if isinstance(value, Function) and name in ("remote", "local", "spawn"):
        return value  # in Modal and Ray, `f.remote()` calls `f` on another machine
    if isinstance(value, str) and name in functions.PATH_PARTS:
        return functions.PATH_PARTS[name](value)
    if isinstance(value, Text | Column) and name in ("strip", "rstrip", "lstrip"):
        return Bound(Name(f"<str>.{name}"), value)
    return Bound(Name(f"<{functions.kind(value)}>.{name}"), value)


def _above(machine: Machine, value: Super, name: str, node: ast.AST) -> object:
    """Evaluate `super().name`: a method of a base class in the script or in a library."""
    for one in value.kind.lineage()[1:]:
        found = one.attributes.get(name)
        if isinstance(found, Function):
            return Bound(found, value.made)
    if name == "__init__" and value.made.made is not None:
        return Bound(Name("<super>.__init__"), value.made)
    return Object(f"super.{name}", [], {}, machine.location(node))


def _of_class(machine: Machine, value: Class, name: str, node: ast.AST) -> object:
    """Evaluate `Class.name` for a class of the script. A class method is bound to the class."""
    found = value.find(name)
    if isinstance(found, Function) and "classmethod" in _decorators(found):
        return Bound(found, value)
    if found is None and name in ("model_validate", "parse_obj"):
        return Bound(Name(f"pydantic.{name}"), value)
    if name == "__dataclass_fields__":
        listed = machine.call(Name("dataclasses.fields"), [Argument(value, machine.location(node))], {}, node)
        return Table({one.attributes["name"]: one for one in listed}) if isinstance(listed, list) else listed
    if found is None and not any(name in one.attributes for one in value.lineage()):
        return machine.unknown(node, f"`{value.name}` has no `{name}`")
    return found


def _decorators(function: Function) -> list[str]:
    return [getattr(one, "id", "") for one in getattr(function.node, "decorator_list", [])]


def _member(machine: Machine, value: Instance, name: str, node: ast.AST) -> object:
    """Evaluate `object.name` for an instance of a class of the script: an attribute, a method or a property."""
    if name in value.attributes:
        return value.attributes[name]
    found = value.kind.find(name)
    if isinstance(found, Function):
        decorators = _decorators(found)
        bound = Bound(found, value.kind if "classmethod" in decorators else value)
        if "property" in decorators or "cached_property" in decorators:
            return machine.call(bound, [], {}, node)
        return found if "staticmethod" in decorators else bound
    if found is not None or name in value.kind.attributes:
        return found
    if name == "__class__":
        return value.kind
    if name == "__dict__":
        return Members(value)
    if value.made is not None:
        return _part(machine, value.made, name, node)
    return Unknown(f"`{name}` is not set in the script", value.kind.required.get(name, machine.location(node)))


def _part(machine: Machine, value: Object, name: str, node: ast.AST) -> object:
    """Evaluate `object.name` for an object of a library. It is the value that the script has set, or an argument with
    which the object was created, such as a tokenizer's `model_max_length`, or else a new object of the library. The
    `name_or_path` of a loaded model is the name by which the script loaded it.
    """
    if name == "__dict__" and functions.is_settings(value):
        return Members(value)
    if name in value.attributes:
        return value.attributes[name]
    if name in value.keywords and (functions.is_settings(value) or name == "model_max_length"):
        return value.keywords[name].value
    if "<command>" in value.attributes and name in (usual := defaults(value.path)):
        return usual[name]
    if name in ("name_or_path", "_name_or_path"):
        loaded = value.receiver if value.last == "config" else value
        given = loaded.argument("pretrained_model_name_or_path", 0) if isinstance(loaded, Object) else None
        if given is not None and isinstance(loaded, Object) and loaded.last == "from_pretrained":
            return given.value
    found = Object(f"{value.path}.{name}", [], {}, machine.location(node), value)
    value.attributes[name] = found
    return found


def item(machine: Machine, value: object, key: object, node: ast.AST) -> object:
    """Evaluate `value[key]`."""
    if isinstance(value, Row) and isinstance(key, str):
        return value.written.get(key, Column(key, value.batch, value.source))
    if isinstance(value, Column) and value.batch:
        return Column(value.name, False, value.source)
    if isinstance(value, Row) and key == EACH:
        return Row()
    items = functions.iterated(value) if key == EACH and isinstance(value, Object | list) else None
    if items is not None and len(items) == 1:
        return items[0]
    if isinstance(value, Unknown):
        return value
    if isinstance(key, Scalar) and isinstance(value, dict | list | tuple | str):
        return _known_item(machine, value, key, node)
    if isinstance(key, Scalar) and isinstance(value, Class):
        return attribute(machine, value, str(key), node)
    if isinstance(value, Name) and isinstance(key, str) and key.isidentifier() and value.last.endswith("Type"):
        return Name(f"{value.path}.{key}")  # a member of an Enum, such as `TaskType["CAUSAL_LM"]`
    if value == Name("os.environ") or (isinstance(value, Object) and value.last == "environ"):
        found = machine.variable(key, None, node)
        return Unknown(found.why, found.location) if isinstance(found, Unset) else found
    if isinstance(value, Object):
        return _object_item(machine, value, key, node)
    if isinstance(value, Name):
        return value  # the brackets make a type, such as `list[str]`, and do not select an item
    if isinstance(key, Unknown) and not isinstance(value, Unknown):
        return Unknown(key.why, key.location, value)
    return machine.unknown(node, "it is an item of a value that is not known", value)


def _known_item(
    machine: Machine, value: dict[object, object] | list[object] | tuple[object, ...] | str, key: object, node: ast.AST
) -> object:
    try:
        return value[key]  # type: ignore[index, call-overload]
    except (KeyError, IndexError, TypeError):
        if isinstance(value, dict) and OPEN in value:
            return value[OPEN]
        if isinstance(value, Words) and isinstance(key, int) and key > 0:
            why = f"the script takes argument {key} from its command line, without a default"
            return machine.unknown(node, f"{why}: `--set {key}=VALUE` gives it")
        return machine.unknown(node, f"it has no item {str(key)[:40]!r}")


def _object_item(machine: Machine, value: Object, key: object, node: ast.AST) -> object:
    """Evaluate `object[key]` for an object of a library. An item that the script has not set is a new object of the
    library.
    """
    name = f"[{key!r}]" if isinstance(key, Scalar) else "[]"
    kept = _of_written_split(value, name) if name not in value.attributes and isinstance(key, str) else None
    if kept is not None:
        value.attributes[name] = kept
    elif name not in value.attributes or name == "[]":
        each = value.attributes.get("[]")
        read = Object(f"{value.path}[]", [Argument(key, machine.location(node))], {}, machine.location(node), value)
        value.attributes[name] = read if name == "[]" else _changed_in_a_loop(value, read, each)
    return value.attributes[name]


def _changed_in_a_loop(owner: Object, read: Object, each: object) -> object:
    """The item of a dataset, such as `rows["train"]`, after all loops of the script.

    `read` is the item before any loop. `each` is the value that a loop assigns to every item, as in `rows[name] =
    rows[name].map(function)`; if no loop does, the result is `read`.
    """
    if isinstance(each, Unknown):
        return Unknown(each.why, each.location, read)
    if not isinstance(each, Object) or each.path.endswith("[]"):
        return read
    below = each.receiver
    if isinstance(below, Object) and below.receiver is owner and below.path.endswith("[]"):
        return Object(each.path, each.positional, each.keywords, each.location, read)
    return Unknown("a loop of the script sets it", each.location, read)


def _of_written_split(value: Object, name: str) -> Object | None:
    """The split `name` of a dataset such as `rows.map(f)`, if the script replaced this split before the call, as in
    `rows["train"] = rows["train"].select(range(100))`; otherwise None.
    """
    steps = functions.lineage(value)
    for n, one in enumerate(steps if functions.is_data(steps[-1]) else []):
        written = one.attributes.get(name)
        if n and isinstance(written, Object) and not (written.receiver is one and written.path.endswith("[]")):
            for step in reversed(steps[:n]):
                written = Object(step.path, step.positional, step.keywords, step.location, written)
            return written
    return None
