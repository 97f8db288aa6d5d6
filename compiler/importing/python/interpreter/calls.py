"""Calls of libraries: computed if the function is known, otherwise recorded; parsers of command lines."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter.functions import (
    first,
    is_trainer,
)
from xpc.compiler.importing.python.interpreter.known import KNOWN
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Class,
    Instance,
    Name,
    Object,
    Unknown,
)

if TYPE_CHECKING:
    from xpc.compiler.importing.python.interpreter.machine import Machine


def recorded(machine: Machine, made: Object) -> Object:
    """Record a call."""
    machine.calls.append(made)
    return made


def library(
    machine: Machine, function: Name | Object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Call a library's function: computed if it is known, otherwise recorded."""
    path = function.path
    known = KNOWN.get(path) or KNOWN.get(f"*.{path.rpartition('.')[2]}")
    if known is not None:
        value = known(machine, positional, keywords, node)
        if value is not NotImplemented:
            return value
    receiver = function.receiver if isinstance(function, Object) else None
    if isinstance(function, Object) and (receiver is None or path.endswith("[]")):
        path, receiver = f"{path}()", function  # such as `tokenizer(text)`
    if isinstance(receiver, Object) and receiver.path == "<line>" and path.endswith(("strip", "decode")):
        return receiver
    made = Object(path, positional, keywords, machine.place(node), receiver)
    recorded(machine, made)
    if isinstance(receiver, Object):
        machine.change(receiver.calls, [*receiver.calls, made])  # type: ignore[arg-type]
        if made.last == "train" and (is_trainer(receiver.path) or receiver.last == "train_on_responses_only"):
            machine.trained.append(moment(receiver))
        if made.last in ("parse_args", "parse_known_args") and receiver.last == "ArgumentParser":
            space = parsed(machine, receiver, node)
            return space if made.last == "parse_args" else (space, [])
        if receiver.last in ("HfArgumentParser", "TrlParser") and made.last.startswith("parse_"):
            return dataclasses(machine, receiver, node)
    return made


def moment(trainer: Object) -> Object:
    """A copy of a trainer with all that it has, because the script may change its parts afterwards."""
    from copy import deepcopy

    try:
        return deepcopy(trainer)
    except RecursionError:
        return trainer


def parsed(machine: Machine, parser: Object, node: ast.AST) -> Instance:
    """The arguments of an argparse parser, with their defaults."""
    space = Instance(Class("Namespace", [], machine.place(node)))
    machine.command_line.append(machine.place(node))
    for call in calls_below(parser):
        if call.last == "set_defaults":
            for name, given in call.keywords.items():
                space.attributes[name], space.places[name] = given.value, given.place
        if call.last != "add_argument":
            continue
        names = [one.value for one in call.positional if isinstance(one.value, str)]
        if not names:
            continue
        long = next((one for one in names if one.startswith("--")), names[0])
        dest = call.keywords.get("dest")
        name = dest.value if dest is not None and isinstance(dest.value, str) else long.lstrip("-").replace("-", "_")
        space.attributes[name] = argument_default(call, long)
        space.places[name] = call.place
    return space


def calls_below(value: Object, depth: int = 0) -> list[Object]:
    """The calls of an object's methods, and of the objects that they return, such as groups of arguments."""
    out: list[Object] = []
    for one in value.calls if depth < 4 else []:
        out += [one, *calls_below(one, depth + 1)]
    return out


def argument_default(call: Object, long: str) -> object:
    """The default of an argument."""
    action, default, required = (call.keywords.get(one) for one in ("action", "default", "required"))
    act = action.value if action is not None else None
    if default is None:
        if act in ("store_true", "store_false"):
            return act == "store_false"
        if not long.startswith("-") or (required is not None and required.value is not False):
            return Unknown(f"the command line gives `{long}`, which has no default", call.place)
        return None
    value, kind_ = default.value, call.keywords.get("type")
    if isinstance(value, str) and kind_ is not None and kind_.value in (Name("int"), Name("float")):
        try:
            return int(value) if kind_.value == Name("int") else float(value)
        except ValueError:
            return Unknown("its default is not a number", call.place)
    return value


def dataclasses(machine: Machine, parser: Object, node: ast.AST) -> object:
    """The objects that transformers' and TRL's parsers make from the command line: the classes with their defaults."""
    machine.command_line.append(machine.place(node))
    given = first(parser.positional, parser.keywords, "dataclass_types")
    kinds = given if isinstance(given, list | tuple) else [given]
    out: list[object] = []
    for one in kinds:
        if isinstance(one, Class):
            found = machine.construct(one, [], {}, node)
            if isinstance(found, Object):
                found.attributes["<command line>"] = True
            out.append(found)
        elif isinstance(one, Name):
            made = Object(one.path, [], {}, machine.place(node))
            made.attributes["<command line>"] = True
            out.append(recorded(machine, made))
        else:
            out.append(machine.unknown(node, "the command line decides"))
    return tuple(out)


def option_default(value: object) -> object:
    """The default of a parameter: that of `typer.Option(3)`, or the value itself."""
    if isinstance(value, Object) and value.last in ("Option", "Argument") and value.path.startswith("typer"):
        return value.positional[0].value if value.positional else None
    return value


def field_default(machine: Machine, value: object) -> object:
    """The default of a dataclass's field."""
    if not isinstance(value, Object) or value.last not in ("field", "Field"):
        return value
    if "default" in value.keywords:
        return value.keywords["default"].value
    factory = value.keywords.get("default_factory")
    if factory is not None:
        return machine.call(factory.value, [], {}, ast.Pass(lineno=value.place.line))
    if value.last == "Field" and value.positional:
        return value.positional[0].value
    return Unknown("it has no default", value.place)
