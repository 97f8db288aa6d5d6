"""Evaluate the expressions of a script without executing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter import functions, row_lists
from xpc.compiler.importing.python.interpreter.assignment import assign
from xpc.compiler.importing.python.interpreter.attributes import attribute, item
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.operators import binary_chain, boolean, comparison, truth_of, unary
from xpc.compiler.importing.python.interpreter.parameter_loops import change_parameters
from xpc.compiler.importing.python.interpreter.source import unparsed
from xpc.compiler.importing.python.interpreter.texts import joined
from xpc.compiler.importing.python.interpreter.values import (
    LONGEST,
    Argument,
    Function,
    Instance,
    Join,
    Object,
    Row,
    Scalar,
    Table,
    Unknown,
    Unset,
    condition,
)
from xpc.compiler.importing.text.entries import LARGEST, Unreadable

if TYPE_CHECKING:
    from typing import Any

WIDE = re.compile(r"[0-9]{4}")
"""Matches a width of 1000 or more in a format specification, with which the result would be too long."""


def _constant(machine: Machine, node: ast.Constant) -> object:
    """Evaluate a literal."""
    value = node.value
    if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        return machine.unknown(node, "the number is larger than any setting allows")
    return value if isinstance(value, Scalar) else machine.unknown(node, "the import does not read such a literal")


def _subscript(machine: Machine, node: ast.Subscript) -> object:
    """Evaluate an index or a slice."""
    value = machine.evaluate(node.value)
    if isinstance(node.slice, ast.Slice):
        location, plain = machine.location(node), node.slice.step is None
        ends: list[Any] = [one and machine.evaluate(one) for one in (node.slice.lower, node.slice.upper)]
        if isinstance(value, list) and row_lists.is_row_list(machine, value) and plain:
            return row_lists.part(machine, value, ends, node)
        if isinstance(value, str | list | tuple) and all(one is None or isinstance(one, int) for one in ends):
            return value[slice(*ends)] if plain else machine.unknown(node, "a slice with a step")
        if isinstance(value, Object):
            given = [Argument(one, location) for one in ends]
            return Object(f"{value.path}[{':' if plain else '::'}]", given, {}, location, value)
        return machine.unknown(node, "it is a part of a value that is not known", value)
    return item(machine, value, machine.evaluate(node.slice), node)


def _elements(machine: Machine, nodes: Iterable[ast.expr]) -> list[object]:
    """Evaluate a list of expressions. A starred expression, as in `[*items]`, contributes its items."""
    out: list[object] = []
    for one in nodes:
        if isinstance(one, ast.Starred):
            value = machine.evaluate(one.value)
            out += value if isinstance(value, list | tuple) else [machine.unknown(one, "the items are not known")]
        else:
            out.append(machine.evaluate(one))
        if len(out) > LONGEST:
            raise Unreadable(f"a list has more than {LONGEST} items", getattr(one, "lineno", 0))
    return out


def _dict(machine: Machine, node: ast.Dict) -> object:
    """Evaluate a dict literal, such as `{"a": 1, **more}`."""
    out = Table()
    for key, value in zip(node.keys, node.values):
        if key is None:
            inner = machine.evaluate(value)
            if isinstance(inner, Instance):
                inner = Table(inner.attributes, inner.locations)
            elif isinstance(inner, Row):
                inner = Table(inner.written)
            if not isinstance(inner, dict):
                found = machine.inherited(value, "`**` unpacks a value that is not known", inner)
                return Unknown(found.why, found.location, out)
            out.update(inner)
            out.locations.update(getattr(inner, "locations", {}))
            continue
        name = machine.evaluate(key)
        if not isinstance(name, str | int | float | bool):
            return machine.unknown(key, "it depends on a key that is not known")
        out[name] = machine.evaluate(value)
        out.locations[name] = machine.location(value)
    return out


def _formatted_value(machine: Machine, node: ast.FormattedValue) -> object:
    """Evaluate a replacement field of an f-string, such as `{lr:.1e}`."""
    value = machine.evaluate(node.value)
    if node.conversion in (ord("r"), ord("a")):
        value = repr(value) if isinstance(value, int | float | str) else machine.unknown(node, "it depends on `repr`")
    if node.format_spec is None:
        return value
    spec = machine.evaluate(node.format_spec)
    if isinstance(spec, str) and WIDE.search(spec) is not None:
        return machine.unknown(node, "its text is too long")
    if isinstance(value, int | float | str) and isinstance(spec, str) and len(spec) < 12:
        try:
            return format(value, spec)
        except ValueError:
            return machine.unknown(node, "a format that Python refuses")
    return machine.unknown(node, "it depends on the format of a value that is not known", value)


def _conditional(machine: Machine, node: ast.IfExp) -> object:
    """Evaluate `a if condition else b`."""
    condition_ = machine.evaluate(node.test)
    truth = truth_of(condition_)
    machine.taken_as_empty(condition_)
    if truth is None and not condition(condition_):
        truth = machine.assumed_truth(node, unparsed(node.test), condition_)
    if truth is not None:
        return machine.evaluate(node.body if truth else node.orelse)
    join = Join(machine.location(node))
    join.column = condition(condition_)
    return join.join(machine.evaluate(node.body), machine.evaluate(node.orelse))


def _named(machine: Machine, node: ast.NamedExpr) -> object:
    """Evaluate `name := value`, and assign the value."""
    value = machine.evaluate(node.value)
    assign(machine, node.target, value)
    return value


def _dict_comprehension(machine: Machine, node: ast.DictComp) -> object:
    """Evaluate a dict comprehension."""
    pairs = _comprehended(machine, node, [node.key, node.value])
    if isinstance(pairs, Unknown) or not all(isinstance(key, str | int) for key, _ in pairs):  # type: ignore[attr-defined]
        return pairs if isinstance(pairs, Unknown) else machine.unknown(node, "it depends on a key that is not known")
    location = machine.location(node)
    return Table(dict(pairs), {key: location for key, _ in pairs})  # type: ignore[attr-defined, call-overload]


def _comprehended(machine: Machine, node: ast.AST, parts: list[ast.expr]) -> object:
    """Evaluate a comprehension with one loop. `parts` are the expressions for an item; the values of several
    expressions become a tuple.
    """
    generators: list[ast.comprehension] = getattr(node, "generators", [])
    if len(generators) != 1:
        return machine.unknown(node, "the import does not read comprehensions with several loops")
    loop = generators[0]
    iterable = machine.evaluate(loop.iter)
    change_parameters(machine, node, iterable)
    if functions.is_signature(iterable) and len(parts) == 1:
        return iterable  # the names of a class's fields, as in `{one.name for one in fields(SFTConfig)}`
    items = functions.iterated(iterable)
    if isinstance(iterable, Unset) and len(parts) == 1:
        # an unset environment variable is assumed to be empty, so the result is empty, too
        return iterable
    if items is None:
        hidden = iterable.hidden if isinstance(iterable, Unknown) else iterable
        return machine.unknown(node, "it is a list of items that are not known", hidden)
    rows = any(functions.is_row(one) for one in items)
    out: list[object] = []
    machine.scopes = [{}, *machine.scopes]
    try:
        for item in items:
            assign(machine, loop.target, item)
            truths = [truth_of(machine.evaluate(one)) for one in loop.ifs]
            if None in truths and not (rows and functions.strips(loop.ifs)):
                return machine.unknown(node, "it selects items by a condition that is not known", iterable)
            if all(one is not False for one in truths):
                values = [machine.evaluate(one) for one in parts]
                out.append(values[0] if len(values) == 1 else tuple(values))
    finally:
        machine.scopes = machine.scopes[1:]
    return out


SAVES = ("save_pretrained", "save_model", "save_to_disk", "to_json", "to_parquet", "to_csv")
"""Methods that write to the path in their first argument."""


def _call(machine: Machine, node: ast.Call) -> object:
    """Evaluate a call: first its function, then its arguments, then the call itself."""
    function = machine.evaluate(node.func)
    positional: list[Argument] = []
    for one in node.args:
        if isinstance(one, ast.Starred):
            value = machine.evaluate(one.value)
            items = value if isinstance(value, list | tuple) else [machine.unknown(one, "`*` of an unknown list")]
            positional += [Argument(item, machine.location(one)) for item in items]
        else:
            positional.append(Argument(machine.evaluate(one), machine.location(one)))
    machine.count(node, len(positional) // 8)
    if isinstance(node.func, ast.Attribute) and node.func.attr in SAVES:
        machine.saved.update(one.value for one in positional[:1] if isinstance(one.value, str))
    keywords: dict[str, Argument] = {}
    for key in node.keywords:
        value, location = machine.evaluate(key.value), machine.location(key.value)
        if key.arg is not None:
            keywords[key.arg] = Argument(value, location)
            continue
        if isinstance(value, Instance):
            value = Table(value.attributes, value.locations)
        if not isinstance(value, dict):
            unread = machine.inherited(key.value, "`**` unpacks a value that is not known", value)
            keywords[f"**{len(keywords)}"] = Argument(unread, location)
            continue
        locations = getattr(value, "locations", {})
        for name, inner in value.items():
            keywords[str(name)] = Argument(inner, locations.get(name, location))
    return machine.call(function, positional, keywords, node)


EXPRESSIONS: dict[type, Callable[[Machine, Any], object]] = {
    ast.Constant: _constant,
    ast.Name: lambda machine, node: machine.lookup(node.id, node),
    ast.Attribute: lambda machine, node: attribute(machine, machine.evaluate(node.value), node.attr, node),
    ast.Subscript: _subscript,
    ast.List: lambda machine, node: _elements(machine, node.elts),
    ast.Set: lambda machine, node: _elements(machine, node.elts),
    ast.Tuple: lambda machine, node: tuple(_elements(machine, node.elts)),
    ast.Dict: _dict,
    ast.JoinedStr: lambda machine, node: joined(machine, [machine.evaluate(one) for one in node.values], node),
    ast.FormattedValue: _formatted_value,
    ast.BinOp: binary_chain,
    ast.UnaryOp: unary,
    ast.BoolOp: boolean,
    ast.Compare: comparison,
    ast.IfExp: _conditional,
    ast.NamedExpr: _named,
    ast.Lambda: lambda machine, node: Function(node, list(machine.scopes), machine.label),
    ast.Await: lambda machine, node: machine.evaluate(node.value),
    ast.Starred: lambda machine, node: machine.unknown(node, "the items are not known"),
    ast.ListComp: lambda machine, node: _comprehended(machine, node, [node.elt]),
    ast.SetComp: lambda machine, node: _comprehended(machine, node, [node.elt]),
    ast.GeneratorExp: lambda machine, node: _comprehended(machine, node, [node.elt]),
    ast.DictComp: _dict_comprehension,
    ast.Call: _call,
}
"""Maps each kind of expression to the function that evaluates it; all other kinds have an unknown value."""
