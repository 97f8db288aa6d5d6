"""Interpret a script from its first line to its last."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from xpc.compiler.importing.python.interpreter.expressions import EXPRESSIONS
from xpc.compiler.importing.python.interpreter.functions import TRAINERS, is_trainer
from xpc.compiler.importing.python.interpreter.machine import Command, Machine, Semantics
from xpc.compiler.importing.python.interpreter.script_calls import call
from xpc.compiler.importing.python.interpreter.source import Part
from xpc.compiler.importing.python.interpreter.statements import STATEMENTS
from xpc.compiler.importing.python.interpreter.values import Bound, Class, Location

SEMANTICS = Semantics(EXPRESSIONS, STATEMENTS, call)


def followed(
    parts: list[Part],
    read: Callable[[str], bytes | None],
    gpu_has_bf16: bool = True,
    given: Mapping[str, str] | None = None,
    assumed: Mapping[Location, bool] | None = None,
    gpus: int = 1,
    command: Command | None = None,
) -> Machine:
    """Interpret a script, or the cells of a notebook, and return the interpreter's state. If the script trains nothing,
    functions that nothing calls are interpreted, too.

    `read` reads files next to the script, `given` are the values of `--set`, `assumed` are the assumed outcomes of
    conditions by location, and `command` is the command that starts the script. The command's arguments fill the
    classes that transformers' and TRL's parsers return.
    """
    machine = Machine(SEMANTICS, read, gpu_has_bf16, given, command)
    machine.assumed_conditions, machine.gpus = dict(assumed or {}), gpus
    machine.walk(parts, machine.main)
    if not machine.trained and not any(is_trainer(one.path) for one in machine.calls):
        machine.not_called = True
        for one in list(machine.functions):
            if one.called or one.label not in machine.texts:
                continue
            machine.scopes = [machine.main]
            if one.owner is None:
                machine.call(one, [], {}, one.node)
            elif isinstance(one.owner, Class) and _makes_trainer(one.node):
                made = machine.call(one.owner, [], {}, one.node)
                machine.scopes = [machine.main]
                machine.call(Bound(one, made), [], {}, one.node)
    return machine


def _makes_trainer(node: ast.AST) -> bool:
    """Whether a method contains a call of a trainer class."""
    names = (
        one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
        for one in ast.walk(node)
        if isinstance(one, ast.Call)
    )
    return any(name in TRAINERS for name in names)
