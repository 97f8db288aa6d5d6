"""Interpret assignments to names, attributes and items."""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter.attributes import item
from xpc.compiler.importing.python.interpreter.machine import Machine, Replaced
from xpc.compiler.importing.python.interpreter.values import (
    OPEN,
    Argument,
    Class,
    Column,
    Instance,
    Location,
    Name,
    Object,
    Row,
    Scalar,
    Table,
    Unknown,
)

MASKED_PADDING = "<padding>"
"""The attribute of a row's labels that states the label of the padding, such as -100."""
MASKED_START = "<start>"
"""The attribute of a row's labels that states how many labels at the beginning are -100."""
IGNORED = -100


def ignored(value: object) -> bool:
    """Whether a label means that its token is not learned: -100, or the name of this number in a library."""
    if isinstance(value, Object) and value.path == "<masked>" and value.positional:
        value = value.positional[0].value  # `[-100] * count`
    return value == IGNORED or (isinstance(value, Name) and value.last.lower().endswith("ignore_index"))


def _from_the_start(index: ast.expr) -> ast.expr | None:
    """How many items an index selects from the beginning of a list, such as `count` in `labels[:count]`. None for any
    other index.
    """
    if not isinstance(index, ast.Slice) or index.step is not None:
        return None
    return index.upper if index.lower is None or ast.unparse(index.lower) == "0" else None


def assign(machine: Machine, target: ast.expr, value: object) -> None:
    """Assign a value to the target of an assignment: a name, an attribute, an item, or a tuple of targets."""
    if isinstance(target, ast.Name):
        machine.define(target.id, value)
    elif isinstance(target, ast.Attribute):
        set_attribute(machine, machine.evaluate(target.value), target.attr, value, machine.location(target))
    elif isinstance(target, ast.Subscript) and _is_padding(target.slice):
        set_attribute(machine, machine.evaluate(target.value), MASKED_PADDING, value, machine.location(target))
    elif isinstance(target, ast.Subscript) and (end := _from_the_start(target.slice)) is not None and ignored(value):
        owner, masked = machine.evaluate(target.value), machine.evaluate(end)
        set_attribute(machine, owner, MASKED_START, masked, machine.location(target))
    elif isinstance(target, ast.Subscript):
        set_item(
            machine, machine.evaluate(target.value), machine.evaluate(target.slice), value, machine.location(target)
        )
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(machine, target.elts, value, target)


def _is_padding(index: ast.expr) -> bool:
    """Whether an index selects the padding, as in `labels[labels == tokenizer.pad_token_id] = -100`. Padding has
    no loss in any case: if the script does not mask it, the collator does.
    """
    return isinstance(index, ast.Compare) and "pad_token" in ast.unparse(index)


def set_attribute(machine: Machine, owner: object, name: str, value: object, location: Location) -> None:
    """Set `owner.name = value`. Other kinds of owners, such as dicts, have no attributes to set and are ignored."""
    if isinstance(owner, Unknown):
        owner = owner.hidden
    if isinstance(owner, Instance) and owner.made is not None and name not in owner.attributes:
        owner = owner.made
    below = owner
    while isinstance(below, Unknown):
        below = below.hidden
    if isinstance(below, Object | Name):
        machine.replaced.append(Replaced(below, name, value, location))
    if isinstance(owner, Object | Instance | Class):
        machine.journal.write(owner.attributes, name, value)  # type: ignore[arg-type]
        machine.journal.write(owner.locations, name, location)  # type: ignore[arg-type]


def set_item(machine: Machine, owner: object, key: object, value: object, location: Location) -> None:
    """Set `owner[key] = value` for a dict, a list, a row, `os.environ` or a library's object."""
    if isinstance(owner, Name) and owner.path == "os.environ" and isinstance(key, str):
        machine.journal.write(machine.environment, key, Argument(value, location))  # type: ignore[arg-type]
    elif isinstance(owner, dict):
        if isinstance(key, str | int | float | bool):
            machine.journal.write(owner, key, value)
            if isinstance(owner, Table):
                machine.journal.write(owner.locations, key, location)  # type: ignore[arg-type]
        else:
            why, at = (key.why, key.location) if type(key) is Unknown else ("a key that is not known was set", location)
            open_further(machine, owner, why, at)
    elif isinstance(owner, list):
        known = isinstance(key, int) and -len(owner) <= key < len(owner)
        new = list(owner)
        if known:
            new[key] = value  # type: ignore[call-overload]
        else:
            new = [Unknown("an item that is not known was set", location)] * len(owner)
        machine.journal.change(owner, new)
    elif isinstance(owner, Object):
        machine.replaced.append(Replaced(owner, "items", owner, location))
        name = f"[{key!r}]" if isinstance(key, Scalar) else "[]"
        machine.journal.write(owner.attributes, name, value)  # type: ignore[arg-type]
    elif isinstance(owner, Row) and isinstance(key, Scalar):
        machine.journal.write(owner.written, key, value)
    elif isinstance(owner, Column) or (isinstance(owner, Unknown) and isinstance(owner.hidden, Column)):
        machine.changed_inside(location)


def open_further(machine: Machine, owner: dict[object, object], why: str, location: Location) -> None:
    """Mark a dict as changed under an unknown key: from now on, every item of the dict is unknown, and the dict may
    have further items.
    """
    for one in list(owner):
        machine.journal.write(owner, one, Unknown(why, location, owner[one]))
    machine.journal.write(owner, OPEN, Unknown(why, location))


def _unpack(machine: Machine, targets: list[ast.expr], value: object, node: ast.AST) -> None:
    """Assign the items of a value to several targets, as in `a, *b = value`."""
    star = next((n for n, one in enumerate(targets) if isinstance(one, ast.Starred)), None)
    if isinstance(value, list | tuple) and star is None and len(value) == len(targets):
        items: list[object] = list(value)
    elif isinstance(value, list | tuple) and star is not None and len(value) >= len(targets) - 1:
        after = len(targets) - star - 1
        items = [*value[:star], list(value[star : len(value) - after]), *value[len(value) - after :]]
    elif isinstance(value, Object):
        items = [item(machine, value, n, node) for n in range(len(targets))]
    elif isinstance(value, tuple) and len(value) == len(targets) - 1 and star is None:
        # transformers' parsers may return one more value: a list of the words that they did not parse
        items = [*value, []]
    else:
        hidden = value.hidden if isinstance(value, Unknown) else value
        why = value.why if isinstance(value, Unknown) else "it is a part of a value that is not known"
        items = [
            Unknown(why, value.location if isinstance(value, Unknown) else machine.location(node), hidden)
            for _ in targets
        ]
    for one, given in zip(targets, items):
        assign(machine, one.value if isinstance(one, ast.Starred) else one, given)


PARAMETERS = ("parameters", "named_parameters", "modules", "named_modules", "children", "layers")
"""Attributes and methods of a model that give its parameters or modules."""


def change_parameters(machine: Machine, node: ast.AST, value: object) -> None:
    """Record a loop or a comprehension over `value` if it goes through the parameters or modules of a model, also by
    number (`range(len(model.layers))`), and changes them.
    """
    if isinstance(value, Object) and value.path == "range" and value.positional:
        value = value.positional[-1].value
    value = value.hidden if isinstance(value, Unknown) else value
    while isinstance(value, Object) and value.path.endswith(":]"):
        value = value.receiver  # `layers[:4]`
    if isinstance(value, Object) and value.last in PARAMETERS and _changes(node):
        machine.parameters.append((machine.location(node), value))


def _changes(node: ast.AST) -> bool:
    """Whether a loop over parameters or modules changes them, for example by `parameter.requires_grad_(False)`, or by
    `setattr(parameter, "requires_grad", False)`.
    """
    if isinstance(node, ast.For | ast.AsyncFor) and _unfreezes_adapters(node.body):
        return False
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    if not isinstance(node, ast.For | ast.AsyncFor) and any(getattr(one, "id", "") == "setattr" for one in calls):
        return True
    return any(
        isinstance(one, ast.Attribute)
        and (isinstance(one.ctx, ast.Store) or one.attr in EFFECTS or is_in_place(one.attr))
        and one.attr != "grad"  # before training, there are no gradients that could be changed
        for one in ast.walk(node)
    )


EFFECTS = ("to", "float", "half", "register_forward_hook")
"""Methods that change a parameter or a module."""


def is_in_place(name: str) -> bool:
    """Whether a method of a tensor changes the tensor, by its name: `mul_`, `requires_grad_`."""
    return name.endswith("_") and not name.startswith("_")


def _unfreezes_adapters(body: list[ast.stmt]) -> bool:
    """Whether a loop only makes the weights of adapters trainable. Such a loop changes nothing, because these weights
    are trainable anyway.
    """
    if len(body) != 1 or not isinstance(body[0], ast.If) or body[0].orelse or "lora" not in ast.unparse(body[0].test):
        return False
    return all(
        isinstance(one, ast.Assign) and ast.unparse(one).endswith(".requires_grad = True") for one in body[0].body
    )
