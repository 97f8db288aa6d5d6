"""Find the loops of a script that change the parameters or modules of a model."""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Object, Unknown

PARAMETERS = ("parameters", "named_parameters", "modules", "named_modules", "children", "layers")
"""Attributes and methods of a model by which a script gets the model's parameters or modules."""


def change_parameters(machine: Machine, node: ast.AST, value: object, call: ast.AST | None = None) -> None:
    """Record a loop over `value` if it changes the parameters or modules of a model. The loop (`node`) may be a
    comprehension, or a loop over indices (`range(len(model.layers))`). For `map`, `call` is the call, and `node` the
    applied function.
    """
    if isinstance(value, Object) and value.path == "range" and value.positional:
        value = value.positional[-1].value
    value = value.hidden if isinstance(value, Unknown) else value
    while isinstance(value, Object) and value.path.endswith(":]"):
        value = value.receiver  # `layers[:4]`
    if isinstance(value, Object) and value.last in PARAMETERS and _changes(node):
        machine.parameters.append((machine.location(call or node), value))


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
        and one.attr != "grad"  # before training, there are no gradients to change
        for one in ast.walk(node)
    )


EFFECTS = ("to", "float", "half", "register_forward_hook")
"""Methods that change a parameter or a module."""


def is_in_place(name: str) -> bool:
    """Whether a tensor's method of this name changes the tensor, as `mul_` and `requires_grad_` do."""
    return name.endswith("_") and not name.startswith("_")


def _unfreezes_adapters(body: list[ast.stmt]) -> bool:
    """Whether a loop only makes the weights of adapters trainable, which they are anyway."""
    if len(body) != 1 or not isinstance(body[0], ast.If) or body[0].orelse or "lora" not in ast.unparse(body[0].test):
        return False
    return all(
        isinstance(one, ast.Assign) and ast.unparse(one).endswith(".requires_grad = True") for one in body[0].body
    )
