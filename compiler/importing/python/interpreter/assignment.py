"""Interpret assignments to names, attributes and items."""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter.attributes import Members, item
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
"""The name of an attribute that the interpreter adds to a row's labels: the label of padding, such as -100."""
MASKED_START = "<start>"
"""The name of an attribute that the interpreter adds to a row's labels: how many of the first labels are -100."""
IGNORED = -100


def ignored(value: object) -> bool:
    """Whether a label excludes its token from the loss: -100, or a library's name for it, such as `IGNORE_INDEX`."""
    if isinstance(value, Object) and value.path == "<masked>" and value.positional:
        value = value.positional[0].value  # `[-100] * count`
    return value == IGNORED or (isinstance(value, Name) and value.last.lower().endswith("ignore_index"))


def _from_the_start(index: ast.expr) -> ast.expr | None:
    """The end of a slice that begins at the first item: `count` in `labels[:count]`. None for any other index."""
    if not isinstance(index, ast.Slice) or index.step is not None:
        return None
    return index.upper if index.lower is None or ast.unparse(index.lower) == "0" else None


def mask_prefix(machine: Machine, loop: ast.For | ast.AsyncFor) -> bool:
    """Interpret a loop that sets the first labels of a row to -100. The loop `for i in range(n): labels[i] = -100` has
    the same effect as `labels[:n] = [-100] * n`. Returns False for any other loop.
    """
    body, end = loop.body, loop.iter
    if not isinstance(end, ast.Call) or ast.unparse(end.func) != "range" or not end.args or len(body) != 1:
        return False
    index, last, inner = ast.unparse(loop.target), end.args[-1], body[0]
    if isinstance(inner, ast.If) and len(inner.body) == 1 and not inner.orelse and isinstance(inner.test, ast.Compare):
        below = isinstance(inner.test.ops[0], ast.Lt) and len(inner.test.ops) == 1
        if not below or ast.unparse(inner.test.left) != index:
            return False
        last, inner = inner.test.comparators[0], inner.body[0]
    if (
        not isinstance(inner, ast.Assign)
        or len(end.args) > 2
        or (len(end.args) == 2 and ast.unparse(end.args[0]) != "0")
    ):
        return False
    target = inner.targets[0]
    if not isinstance(target, ast.Subscript) or ast.unparse(target.slice) != index or len(inner.targets) > 1:
        return False
    owner = machine.evaluate(target.value)
    if not isinstance(owner, Object) or not ignored(machine.evaluate(inner.value)):
        return False
    set_attribute(machine, owner, MASKED_START, machine.evaluate(last), machine.location(inner))
    return True


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
    """Whether an index selects the padding, as in `labels[labels == tokenizer.pad_token_id] = -100`. Such an assignment
    has no effect on the loss: if the script did not mask the padding, the collator would.
    """
    return isinstance(index, ast.Compare) and "pad_token" in ast.unparse(index)


def set_attribute(machine: Machine, owner: object, name: str, value: object, location: Location) -> None:
    """Set `owner.name = value`. Does nothing for an owner such as a dict, which has no attributes to set."""
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
            if isinstance(owner, Members) and isinstance(key, str):
                set_attribute(machine, owner.owner, key, value, location)
            if isinstance(owner, Table):
                machine.journal.write(owner.locations, key, location)  # type: ignore[arg-type]
        else:
            why, at = (
                (key.why, key.location)
                if type(key) is Unknown
                else ("the script sets a key that is not known", location)
            )
            open_further(machine, owner, why, at)
    elif isinstance(owner, list):
        known = isinstance(key, int) and -len(owner) <= key < len(owner)
        new = list(owner)
        if known:
            new[key] = value  # type: ignore[call-overload]
        else:
            new = [Unknown("the script sets an item that is not known", location)] * len(owner)
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
    """Mark a dict in which the script sets an item with an unknown key: from now on, all its items are unknown, and it
    may have further items.
    """
    for one in list(owner):
        machine.journal.write(owner, one, Unknown(why, location, owner[one]))
        if isinstance(owner, Members) and isinstance(one, str):
            set_attribute(machine, owner.owner, one, owner[one], location)
    machine.journal.write(owner, OPEN, Unknown(why, location))
    if isinstance(owner, Members):
        set_attribute(machine, owner.owner, OPEN, owner[OPEN], location)


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
        # transformers' parsers may also return a list of the words that they did not parse
        items = [*value, []]
    else:
        hidden = value.hidden if isinstance(value, Unknown) else value
        why = value.why if isinstance(value, Unknown) else "it is unpacked from a value that is not known"
        items = [
            Unknown(why, value.location if isinstance(value, Unknown) else machine.location(node), hidden)
            for _ in targets
        ]
    for one, given in zip(targets, items):
        assign(machine, one.value if isinstance(one, ast.Starred) else one, given)
