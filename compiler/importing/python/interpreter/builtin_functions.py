"""Compute Python's built-in functions of numbers and collections, such as `len` and `zip`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from xpc.compiler.importing.python.interpreter import row_lists
from xpc.compiler.importing.python.interpreter.attributes import EACH, Members
from xpc.compiler.importing.python.interpreter.functions import first, is_signature, iterated
from xpc.compiler.importing.python.interpreter.machine import Arguments, Keywords, Machine
from xpc.compiler.importing.python.interpreter.operators import LENGTH, is_tokens, truth_of
from xpc.compiler.importing.python.interpreter.values import (
    Choice,
    Column,
    Name,
    Object,
    Scalar,
    Table,
    Text,
    Unknown,
    Unset,
)

DEPTH = 20
"""The largest depth to which nested dicts are copied."""


def _number(convert: type) -> Callable[..., object]:
    def number(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
        value = first(positional, keywords)
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) < 64):
            try:
                return convert(value)
            except (ValueError, OverflowError):
                return machine.unknown(node, "it is not a number")
        if isinstance(value, Unset):
            # for an unset variable, Python raises an error: `int(None)`
            return Unknown(value.why, value.location)
        why = "it depends on a number that is not known"
        return value if isinstance(value, Unknown) else machine.unknown(node, why, value)

    return number


def _text(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, Unknown | Text | Column | Object | Choice | str):
        return value
    why = "it converts to text a value that is neither a text nor a number"
    return str(value) if isinstance(value, Scalar) else machine.unknown(node, why)


def _truth(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    found = truth_of(first(positional, keywords))
    return machine.unknown(node, "it depends on a value that is not known") if found is None else found


def _length(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, list) and row_lists.is_row_list(machine, value):
        return machine.unknown(node, LENGTH, row_lists.length(machine, value, node))
    if isinstance(value, str | list | tuple | dict):
        return len(value)
    if isinstance(value, Column) and value.batch:
        return Column("<length>")
    return machine.unknown(node, LENGTH, value)


def _range(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    values = [one.value for one in positional]
    if values and values[-1] == Column("<length>"):
        return [EACH]
    if values and all(isinstance(one, int) for one in values) and values[-1:] != [0]:
        items = range(*map(int, map(str, values)))
        if len(items) <= 256:
            return list(items)
    return Object("range", positional, keywords, machine.location(node))


def _files(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute a function that lists the files in a folder, such as the checkpoints of an earlier run. The list is
    assumed to be empty, as it is before the first run.
    """
    return Unset("it depends on the files in a folder of the training machine", machine.location(node))


def _list(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if value is None or isinstance(value, list | tuple | dict):
        return list(value or [])
    if isinstance(value, Column | Unknown | Object) or (isinstance(value, Name) and is_signature(value)):
        return value
    return machine.unknown(node, "it depends on a list that is not known")


def _tuple(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = _list(machine, positional, keywords, node)
    return tuple(value) if isinstance(value, list) else value


def dict_of(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `dict(...)`."""
    out = Table()
    value = first(positional, keywords) if positional else out
    if isinstance(value, list) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        value = Table({key: inner for key, inner in value if isinstance(key, str | int)})
    if not isinstance(value, dict):
        return value if isinstance(value, Unknown) else machine.unknown(node, "it depends on a dict that is not known")
    out.update(value)
    out.locations.update(getattr(value, "locations", {}))
    for name, given in keywords.items():
        if name.startswith("**"):
            return machine.unknown(node, "`**` unpacks a value that is not known")
        out[name], out.locations[name] = given.value, given.location
    return out


def copied(value: object, depth: int = 0) -> object:
    """A copy of a dict and of all dicts nested in it. Any other value is returned unchanged."""
    if not isinstance(value, dict) or depth > DEPTH:
        return value
    values = {key: copied(one, depth + 1) for key, one in value.items()}
    if isinstance(value, Members):
        return Table(values, value.locations)
    return type(value)(values, value.locations) if isinstance(value, Table) else values


def _zip(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    lists = [iterated(one.value) for one in positional]
    known = [one for one in lists if one is not None]
    if len(known) < len(lists) or not lists:
        return machine.unknown(node, "it depends on lists that are not known", _library_object(positional))
    return list(zip(*known))


def _library_object(positional: Arguments) -> Object | None:
    """The first argument of a call that is a library's object, such as `model.layers` in `enumerate(model.layers)`."""
    return next((one.value for one in positional if isinstance(one.value, Object)), None)


def _enumerate(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    items = iterated(first(positional, keywords))
    if items is None:
        return machine.unknown(node, "it depends on a list that is not known", _library_object(positional))
    return list(enumerate(items))


def _extreme(choose: Callable[..., object]) -> Callable[..., object]:
    def extreme(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
        values = [one.value for one in positional]
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = list(values[0])
        if values and all(isinstance(one, int | float) for one in values):
            return choose(values)
        known = [one for one in values if isinstance(one, int)]
        if (
            choose is min
            and len(values) == 2
            and known
            and any(isinstance(one, Unknown) and one.why == LENGTH for one in values)
        ):
            # for `min(1000, len(dataset))`, assume 1000: `select` then takes all rows of a smaller dataset
            return known[0]
        found = [one for one in values if isinstance(one, Unknown)]
        if choose is min and len(found) == len(values) > 0 and is_tokens(found[0].hidden):
            return found[0]  # `min(len(prompt), len(row))`: the tokens of a prompt are the first tokens of its row
        if found:
            return Unknown(found[0].why, found[0].location)
        return machine.unknown(node, "it depends on a value that is not known")

    return extreme


def _whether(stops: bool) -> Callable[..., object]:
    """Return a function that computes `any` (`stops` is true) or `all` (false) of a list with known items."""

    def whether(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
        items = first(positional, keywords)
        if not isinstance(items, list | tuple):
            return machine.inherited(node, "it depends on items that are not known", items)
        truths = [truth_of(one) for one in items]
        if stops in truths:
            return stops
        return machine.unknown(node, "it depends on a value that is not known") if None in truths else not stops

    return whether


def _round(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    values = [one.value for one in positional]
    # `round(1, -1000000000)` would compute 10 ** 1000000000
    digits = values[1] if len(values) > 1 else 0
    if values and all(isinstance(one, int | float) for one in values) and abs(digits) < 100:  # type: ignore[arg-type]
        return round(*values)  # type: ignore[call-overload]
    return machine.unknown(node, "it depends on a number that is not known")


BUILTIN_FUNCTIONS: dict[str, Callable[..., object]] = {
    "int": _number(int),
    "float": _number(float),
    "str": _text,
    "bool": _truth,
    "len": _length,
    "range": _range,
    "list": _list,
    "os.listdir": _files,
    "set": _list,
    "tuple": _tuple,
    "dict": dict_of,
    "zip": _zip,
    "enumerate": _enumerate,
    "min": _extreme(min),
    "max": _extreme(max),
    "sum": _extreme(sum),
    "round": _round,
    "any": _whether(True),
    "all": _whether(False),
}
"""Maps the name of a built-in function to the Python function that computes its result."""
