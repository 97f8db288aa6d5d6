"""Interpret calls of library functions: compute the result if the function is known, otherwise record the call."""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter.command_line import parsed
from xpc.compiler.importing.python.interpreter.functions import is_trainer
from xpc.compiler.importing.python.interpreter.known import KNOWN
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.parsed_classes import PARSERS, filled
from xpc.compiler.importing.python.interpreter.values import Argument, Name, Object


def library(
    machine: Machine, function: Name | Object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Call a library function: compute its result if the function is known, otherwise record and return the call."""
    path = function.path
    known = KNOWN.get(path) or KNOWN.get(f"*.{path.rpartition('.')[2]}")
    if known is not None:
        try:
            value = known(machine, positional, keywords, node)
        except (TypeError, ValueError, ArithmeticError):
            return machine.unknown(node, f"a call of `{path[:60]}` that Python refuses")
        if value is not NotImplemented:
            return value
    receiver = function.receiver if isinstance(function, Object) else None
    if isinstance(function, Object) and (receiver is None or path.endswith("[]")):
        path, receiver = f"{path}()", function  # a call of the object itself, as in `tokenizer(text)`
    if isinstance(receiver, Object) and receiver.path == "<line>" and path.endswith(("strip", "decode")):
        return receiver
    made = Object(path, positional, keywords, machine.place(node), receiver)
    machine.calls.append(made)
    if isinstance(receiver, Object):
        machine.journal.change(receiver.calls, [*receiver.calls, made])  # type: ignore[arg-type]
        if made.last == "train" and (is_trainer(receiver.path) or receiver.last == "train_on_responses_only"):
            machine.trained.append(_moment(machine, receiver))
        if made.last in ("parse_args", "parse_known_args") and receiver.last == "ArgumentParser":
            space = parsed(machine, receiver, node)
            return space if made.last == "parse_args" else (space, [])
        if receiver.last in PARSERS and (made.last.startswith("parse_") or made.last == "parse"):
            return filled(machine, receiver, node)
    return made


def _moment(machine: Machine, trainer: Object) -> Object:
    """A deep copy of a trainer at the time of `trainer.train()`, because the script may change the trainer
    afterwards.
    """
    from copy import deepcopy

    copies: dict[int, object] = {}
    try:
        return deepcopy(trainer, copies)
    except RecursionError:
        return trainer
    finally:
        lengths = (len(one) for one in copies.values() if isinstance(one, list | tuple | dict))
        machine.steps += len(copies) + sum(lengths) // 8
