"""Lists of rows that a script collects from a file. The interpreter runs a loop over rows only once, so such a list has
a single item, which represents all rows.
"""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Argument, Choice, Column, Object, Row, Table, Text

DEPTH = 8
"""The largest depth to which a nested value is searched for rows."""
ROWS = "<rows>"


def source_of(value: object, depth: int = 0) -> object:
    """The file or dataset from which a row, or the columns in a value, come. None for any other value."""
    if isinstance(value, Row | Column):
        return value.source
    inner = inside(value)[:50] if depth <= DEPTH else []
    return next((found for one in inner if (found := source_of(one, depth + 1)) is not None), None)


def inside(value: object) -> list[object]:
    """The values of which a value is directly built: the parts of a string, the items of a list, or the arguments of a
    call.
    """
    if isinstance(value, Object):
        return [value.receiver, *(one.value for one in value.positional)]
    if isinstance(value, Choice):
        return [value.full, value.empty]
    if isinstance(value, Text):
        return list(value.parts)
    return list(value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ())


def is_row_list(machine: Machine, value: object) -> bool:
    """Whether a value is a list that represents all rows of a file. Inside a loop or a function over rows, a list
    belongs to one row.
    """
    inside = machine.row_loops or machine.row_functions
    return isinstance(value, list) and len(value) == 1 and not inside and source_of(value[0]) is not None


def length(machine: Machine, value: list[object], node: ast.AST) -> Object:
    """The value of `len(rows)`: an object that represents the unknown number of rows."""
    return Object(ROWS, [Argument(value, machine.location(node))], {}, machine.location(node))


def part(machine: Machine, value: list[object], ends: list[object], node: ast.AST) -> list[object]:
    """Compute `rows[start:end]`: a list with a single row that represents all rows, and records that it comes from a
    part of the file.
    """
    location = machine.location(node)
    made = Object(f"{ROWS}[:]", [Argument(one, location) for one in ends], {}, location, source_of(value[0]))
    return [_moved(value[0], made)]


def shuffled(machine: Machine, value: list[object], node: ast.AST) -> list[object]:
    """Compute `random.sample(rows, len(rows))`: a list with a single row that represents all rows, and records that it
    comes from the shuffled file.
    """
    return [_moved(value[0], Object(f"{ROWS}.shuffle", [], {}, machine.location(node), source_of(value[0])))]


def _moved(value: object, source: Object, depth: int = 0) -> object:
    """A copy of a value with `source`, a file or a dataset, as the origin of its rows or of each column in it."""
    if isinstance(value, Column):
        return Column(value.name, value.batch, source)
    if depth > DEPTH:
        return value
    if isinstance(value, Row):
        written = {key: _moved(one, source, depth + 1) for key, one in value.written.items()}
        return Row(value.batch, written, source)
    if isinstance(value, dict):
        inner = {key: _moved(one, source, depth + 1) for key, one in value.items()}
        return Table(inner, getattr(value, "locations", {}))
    if isinstance(value, list | tuple):
        items = [_moved(one, source, depth + 1) for one in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Text):
        return Text(tuple(_moved(one, source, depth + 1) for one in value.parts))
    if isinstance(value, Choice):
        return Choice(value.column, _moved(value.full, source, depth + 1), _moved(value.empty, source, depth + 1))
    if isinstance(value, Object) and source_of(value) is not None:
        given = [Argument(_moved(one.value, source, depth + 1), one.location) for one in value.positional]
        receiver = value.receiver
        if source_of(receiver) is not None:
            receiver = _moved(receiver, source, depth + 1)
        return Object(value.path, given, dict(value.keywords), value.location, receiver)
    return value
