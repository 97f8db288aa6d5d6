"""Interpret the statements of a script without executing it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.assignment import assign
from xpc.compiler.importing.python.interpreter.command_line.typer_functions import register
from xpc.compiler.importing.python.interpreter.control_flow import CONTROL_FLOW
from xpc.compiler.importing.python.interpreter.imports import import_module, import_names
from xpc.compiler.importing.python.interpreter.machine import RETURN, STOP, Machine, Replaced
from xpc.compiler.importing.python.interpreter.values import Class, Function, Object, Scalar

if TYPE_CHECKING:
    from typing import Any


def _expression(machine: Machine, node: ast.Expr) -> str:
    """Interpret an expression statement, such as a call."""
    value = machine.evaluate(node.value)
    return STOP if value is functions.EXIT else ""


def _assignment(machine: Machine, node: ast.Assign) -> None:
    """Interpret `name = value`."""
    value = machine.evaluate(node.value)
    for target in node.targets:
        assign(machine, target, value)


def _annotated(machine: Machine, node: ast.AnnAssign) -> None:
    """Interpret `name: type = value`."""
    if node.value is not None:
        assign(machine, node.target, machine.evaluate(node.value))


def _augmented(machine: Machine, node: ast.AugAssign) -> None:
    """Interpret `name += value`."""
    load: ast.expr = ast.copy_location(_loaded(node.target), node.target)
    binary = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
    assign(machine, node.target, machine.evaluate(binary))


def _loaded(target: ast.expr) -> ast.expr:
    """The target of `+=` as an expression that can be evaluated: `a.b` for `a.b += 1`."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def _delete(machine: Machine, node: ast.Delete) -> None:
    """Interpret `del table[key]`, and `del layers[4:]`, which deletes a part of a model. `del name` has no effect."""
    for one in node.targets:
        if isinstance(one, ast.Subscript):
            owner, key = machine.evaluate(one.value), machine.evaluate(one.slice)
            if isinstance(owner, dict) and isinstance(key, Scalar) and key in owner:
                machine.journal.remove(owner, key)
            elif isinstance(owner, Object):
                machine.replaced.append(Replaced(owner, "items", owner, machine.location(node)))


def _return(machine: Machine, node: ast.Return) -> str:
    """Interpret `return`."""
    value = None if node.value is None else machine.evaluate(node.value)
    if machine.returned:
        machine.returned[-1].append(value)
    return RETURN


def _global(machine: Machine, node: ast.Global) -> None:
    """Interpret `global name`."""
    declared = machine.scopes[0].get("<global>")
    machine.scopes[0]["<global>"] = [*(declared if isinstance(declared, list) else []), *node.names]


def _function(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Interpret a function definition. A cell function of a marimo notebook (`@app.cell`) runs at once."""
    decorators = [functions.dotted(one) for one in node.decorator_list]
    if any(one.endswith(".cell") for one in decorators) and len(machine.scopes) == 1:
        machine.block([one for one in node.body if not isinstance(one, ast.Return)])
        return
    made = Function(node, list(machine.scopes), machine.label)
    machine.functions.append(made)
    machine.define(node.name, made)
    register(machine, made)


def _class(machine: Machine, node: ast.ClassDef) -> None:
    """Interpret a class definition."""
    made = Class(node.name, [machine.evaluate(one) for one in node.bases], machine.location(node))
    scopes, before = machine.scopes, len(machine.functions)
    machine.scopes = [made.attributes, *scopes]
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            made.fields.append(one.target.id)
            made.locations[one.target.id] = machine.location(one)
            made.annotations[one.target.id] = ast.unparse(one.annotation)
            kind = machine.evaluate(one.annotation) if isinstance(one.annotation, ast.Name) else None
            if isinstance(kind, Class):
                made.kinds[one.target.id] = kind
            if one.value is None:
                made.required[one.target.id] = machine.location(one)
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            made.locations[one.targets[0].id] = machine.location(one)
        machine.block([one])
    machine.scopes = scopes
    for inner in machine.functions[before:]:
        inner.owner = made
        inner.scopes = scopes
    machine.define(node.name, made)


STATEMENTS: dict[type, Callable[[Machine, Any], str | None]] = {
    **CONTROL_FLOW,
    ast.Expr: _expression,
    ast.Assign: _assignment,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.Global: _global,
    ast.Return: _return,
    ast.Import: import_module,
    ast.ImportFrom: import_names,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
}
"""Maps each kind of statement to the function that interprets it. Statements of other kinds are ignored."""
