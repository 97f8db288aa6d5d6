"""Interpret calls. The body of a function or class of the script is interpreted with the arguments. The result of a
library's function is computed if the function is known; otherwise the call is recorded.
"""

from __future__ import annotations

import ast

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.branches import CALLS, MISSING
from xpc.compiler.importing.python.interpreter.command_line import hydra
from xpc.compiler.importing.python.interpreter.command_line.argparse_arguments import parsed
from xpc.compiler.importing.python.interpreter.command_line.typer_functions import field_default, option_default, run
from xpc.compiler.importing.python.interpreter.known import KNOWN
from xpc.compiler.importing.python.interpreter.machine import MAX_DEPTH, STOP, Defaulted, Machine
from xpc.compiler.importing.python.interpreter.methods import method
from xpc.compiler.importing.python.interpreter.parsed_classes import PARSERS, filled
from xpc.compiler.importing.python.interpreter.values import (
    OPEN,
    Argument,
    Bound,
    Choice,
    Class,
    Function,
    Instance,
    Join,
    Location,
    Name,
    Object,
    Table,
    Unknown,
)

MAX_CALLS = 24
"""The largest depth of nested calls of the script's functions."""
TRAINED = "<trained>"
"""The name of a trainer's attribute that counts the calls of the method `train`."""
MAX_RECURSION = 2
"""The largest depth of a recursion with unknown values. Both branches of an unknown condition are interpreted, so the
number of calls grows exponentially with the depth.
"""


def call(
    machine: Machine, function: object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Call a value. A function or a class of the script is interpreted; a call of a library's function is computed or
    recorded.
    """
    started = NotImplemented if positional or keywords or machine.not_called else run(machine, function, node)
    if started is not NotImplemented:
        return started
    if isinstance(function, Function):
        return _follow(machine, function, positional, keywords, node)
    if isinstance(function, Class):
        return _construct(machine, function, positional, keywords, node)
    if isinstance(function, Bound):
        if isinstance(function.function, Function) and function.receiver is not None:
            own = Argument(function.receiver, machine.location(node))
            return _follow(machine, function.function, [own, *positional], keywords, node)
        if function.keywords or isinstance(function.function, Function):
            return machine.call(function.function, positional, {**function.keywords, **keywords}, node)
        return method(machine, function, positional, keywords, node)
    if isinstance(function, Name | Object):
        return library(machine, function, positional, keywords, node)
    if isinstance(function, Unknown):
        inner = positional[0].value if positional else None
        return Unknown(function.why, function.location, inner)
    return machine.unknown(node, "it depends on a call whose function is not known")


def _follow(
    machine: Machine, function: Function, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Interpret a function of the script with its arguments, and return its value."""
    function.called = True
    if functions.finds_linear_layers(function.node):
        return "all-linear"
    if machine.nesting >= MAX_CALLS or machine.depth > MAX_DEPTH:
        return machine.unknown(node, "the calls are nested too deeply")
    if machine.following.count(function) >= MAX_RECURSION and any(map(_is_unknown, (*positional, *keywords.values()))):
        return machine.unknown(node, f"`{function.name}` calls itself with values that are not known")
    scopes, label, depth = machine.scopes, machine.label, machine.depth
    local: dict[str, object] = {}
    machine.scopes, machine.label = list(function.scopes), function.label
    _bind(machine, function, positional, keywords, local)
    machine.scopes = [local, *function.scopes]
    machine.returned.append([])
    machine.forks.append([])
    machine.nesting, machine.depth = machine.nesting + 1, min(depth, MAX_DEPTH // 2)
    machine.following.append(function)
    try:
        if isinstance(function.node, ast.Lambda):
            return machine.evaluate(function.node.body)
        ends = machine.block(function.node.body)
        values = machine.returned[-1]
        if not ends and values:
            values.append(None)
        if not values:
            return functions.EXIT if ends == STOP else None
        join = Join(machine.location(function.node))
        if len(values) > 1:
            machine.undecided.setdefault(join.location, []).extend(machine.forks[-1])
        value = values[-1]
        for one in reversed(values[:-1]):
            choice = isinstance(one, Choice) and one.empty is MISSING
            join.column = one.column if choice else ""  # type: ignore[attr-defined]
            value = join.join(one.full if choice else one, value)  # type: ignore[attr-defined]
        return value.full if isinstance(value, Choice) and value.empty is MISSING else value
    finally:
        machine.following.pop()
        machine.returned.pop()
        machine.forks.pop()
        machine.nesting, machine.depth = machine.nesting - 1, depth
        machine.scopes, machine.label = scopes, label


def _is_unknown(one: Argument) -> bool:
    """Whether an argument's value is unknown, or an object of a library."""
    return isinstance(one.value, Unknown | Object | Choice)


def _bind(
    machine: Machine,
    function: Function,
    positional: list[Argument],
    keywords: dict[str, Argument],
    local: dict[str, object],
) -> None:
    """Store the value of each parameter of a function in `local`. It is the argument of the call, or else the
    parameter's default.
    """
    spec = function.node.args
    names = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(spec.defaults)) + list(spec.defaults)
    rest = dict(keywords)
    unread = next((one for key, one in rest.items() if key.startswith(OPEN)), None)
    for n, (one, default) in enumerate(zip(names, defaults)):
        if n < len(positional):
            local[one.arg] = positional[n].value
        elif one.arg in rest:
            local[one.arg] = rest.pop(one.arg).value
        else:
            local[one.arg] = _parameter(machine, function, one, default, unread)
    for one, default in zip(spec.kwonlyargs, spec.kw_defaults):
        given = rest.pop(one.arg, None)
        local[one.arg] = given.value if given is not None else _parameter(machine, function, one, default, unread)
    if spec.vararg is not None:
        local[spec.vararg.arg] = tuple(one.value for one in positional[len(names) :])
    if spec.kwarg is not None:
        local[spec.kwarg.arg] = Table(
            {key: one.value for key, one in rest.items()}, {key: one.location for key, one in rest.items()}
        )


def _parameter(
    machine: Machine, function: Function, one: ast.arg, default: ast.expr | None, unread: Argument | None = None
) -> object:
    """The value of a parameter that a call does not pass. It is unknown if the call has a `**` argument with unknown
    contents (`unread`), which may include the parameter.
    """
    if unread is not None and isinstance(unread.value, Unknown):
        return Unknown(unread.value.why, unread.location)
    if default is not None:
        value = machine.evaluate(default)
        return option_default(value)
    composed = hydra.configuration(machine, function)
    if composed is not None:
        return composed
    made = _by_annotation(machine, function, one) if machine.not_called else None
    if made is not None:
        return made
    why = f"no call in the script passes the parameter `{one.arg}` of `{function.name}`"
    return Unknown(why, Location(function.label, one.lineno))


def _by_annotation(machine: Machine, function: Function, one: ast.arg) -> object:
    """The value for a parameter that no call passes: an object of its annotated class, with the class's defaults. None
    if the script does not define this class, or if a field has no default.
    """
    note = one.annotation
    if isinstance(note, ast.BinOp):  # an annotation such as `Config | None`
        note = note.left
    if isinstance(note, ast.Subscript) and functions.dotted(note.value).endswith("Optional"):
        note = note.slice
    if isinstance(note, ast.Constant) and isinstance(note.value, str):
        note = ast.Name(note.value)
    if not isinstance(note, ast.Name):
        return None
    kind = next((scope[note.id] for scope in [*function.scopes, machine.main] if note.id in scope), None)
    if not isinstance(kind, Class) or not kind.fields or kind.required or kind.find("__init__") is not None:
        return None
    found = Defaulted(one.arg, kind.name, Location(function.label, one.lineno))
    if found not in machine.defaulted:
        machine.defaulted.append(found)
    return machine.call(kind, [], {}, ast.Pass(lineno=one.lineno))


def _construct(
    machine: Machine, kind: Class, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Create an object of a class of the script. If the class inherits from a class of a library, a call of the
    library's class is recorded and returned instead.
    """
    base = kind.base()
    made = Instance(kind)
    if base and functions.is_library(base):
        made.made = Object(base, list(positional), dict(keywords), machine.location(node))
    init = kind.find("__init__")
    if isinstance(init, Function):
        _follow(machine, init, [Argument(made, machine.location(node)), *positional], keywords, node)
    else:
        _fields(machine, made, positional, keywords)
        post = kind.find("__post_init__")
        if isinstance(post, Function):
            _follow(machine, post, [Argument(made, machine.location(node))], {}, node)
    if made.made is not None:
        made.made.keywords = {
            **{
                name: Argument(value, made.locations.get(name, machine.location(node)))
                for name, value in made.attributes.items()
            },
            **made.made.keywords,
        }
        made.made.attributes["<class>"] = kind
        machine.calls.append(made.made)
        return made.made
    return made


def _fields(machine: Machine, made: Instance, positional: list[Argument], keywords: dict[str, Argument]) -> None:
    """Set each field of a dataclass to its argument in the call, or else to its default."""
    names: list[str] = []
    for kind in reversed(made.kind.lineage()):
        for name in kind.fields:
            if name not in names:
                names.append(name)
            if name in kind.attributes:
                made.attributes[name] = field_default(machine, kind.attributes[name])
                made.locations[name] = kind.locations[name]
    for one, given in zip(names, positional):
        made.attributes[one], made.locations[one] = given.value, given.location
    for key, given in keywords.items():
        if not key.startswith(OPEN):
            made.attributes[key], made.locations[key] = _nested(machine, made.kind, key, given), given.location
        else:
            for name in names:
                value = given.value if isinstance(given.value, Unknown) else None
                unread = value or Unknown("`**` unpacks a value that is not known", given.location)
                made.attributes[name] = Unknown(unread.why, unread.location)


def _nested(machine: Machine, kind: Class, name: str, given: Argument) -> object:
    """The value of a pydantic field. If the field's class is a pydantic model, a dict is converted to that model."""
    inner = next((one.kinds[name] for one in kind.lineage() if name in one.kinds), None)
    if inner is None or not isinstance(given.value, dict) or not kind.base().startswith("pydantic"):
        return given.value
    locations = getattr(given.value, "locations", {})
    values = {str(key): Argument(one, locations.get(key, given.location)) for key, one in given.value.items()}
    return machine.call(inner, [], values, ast.Pass(lineno=given.location.line))


def library(
    machine: Machine, function: Name | Object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Call a library's function: compute its value if the function is known, otherwise record the call."""
    path = function.path
    known = KNOWN.get(path) or KNOWN.get(f"*.{path.rpartition('.')[2]}")
    if known is not None:
        try:
            value = known(machine, positional, keywords, node)
        except (TypeError, ValueError, ArithmeticError):
            return machine.unknown(node, f"Python refuses this call of `{path[:60]}`")
        if value is not NotImplemented:
            return value
    receiver = function.receiver if isinstance(function, Object) else None
    if isinstance(function, Object) and (receiver is None or path.endswith("[]")):
        # the called value is an object, not a function, as in `tokenizer(text)`
        path, receiver = f"{path}()", function
    if isinstance(receiver, Object) and receiver.path == "<line>" and path.endswith(("strip", "decode")):
        return receiver
    if isinstance(receiver, Object) and path.endswith((".map", ".filter", ".apply")):
        positional = [Argument(_kept(one.value), one.location) for one in positional]
        keywords = {key: Argument(_kept(one.value), one.location) for key, one in keywords.items()}
    elif "formatting_func" in keywords:
        given = keywords["formatting_func"]
        keywords = {**keywords, "formatting_func": Argument(_kept(given.value), given.location)}
    made = Object(path, positional, keywords, machine.location(node), receiver)
    machine.calls.append(made)
    if isinstance(receiver, Object):
        machine.journal.change(receiver.calls, [*receiver.calls, made], CALLS)  # type: ignore[arg-type]
        if made.last == "train" and (functions.is_trainer(receiver.path) or receiver.last == "train_on_responses_only"):
            before = receiver.attributes.get(TRAINED, 0)
            times = before + 1 if isinstance(before, int) else before
            machine.journal.write(receiver.attributes, TRAINED, times)  # type: ignore[arg-type]
            machine.trained.append(_moment(machine, receiver))
        if made.last == "to_dict" and functions.is_settings(receiver) and receiver.last not in functions.TRAINERS:
            return _as_dict(receiver)
        if made.last in ("parse_args", "parse_known_args") and receiver.last == "ArgumentParser":
            space = parsed(machine, receiver, node)
            return space if made.last == "parse_args" else (space, [])
        if receiver.last in PARSERS and (made.last.startswith("parse_") or made.last == "parse"):
            return filled(machine, receiver, node, made)
    return made


def _kept(function: object) -> object:
    """A copy of a script's function with the present values of its variables, because `map` or the trainer calls it
    immediately; also for the functions of its module that it may call. Any other value is returned unchanged.
    """
    if not isinstance(function, Function):
        return function
    function.called = True
    scopes = {id(scope): dict(scope) for scope in function.scopes}
    for scope in scopes.values():
        for name, one in scope.items():
            if isinstance(one, Function) and scopes.keys() >= set(map(id, one.scopes)):
                scope[name] = Function(one.node, [scopes[id(each)] for each in one.scopes], one.label, one.owner)
    return Function(function.node, list(scopes.values()), function.label, function.owner, True)


def _as_dict(config: Object) -> Table:
    """Compute `config.to_dict()`. It has the arguments that the script passes to the configuration or sets later,
    without the defaults of the class.
    """
    given = {name: one for name, one in config.keywords.items() if not name.startswith(OPEN)}
    locations = {name: one.location for name, one in given.items()} | config.locations
    changed = {name: one for name, one in config.attributes.items() if name in config.locations}
    return Table({**{name: one.value for name, one in given.items()}, **changed}, locations)


def _moment(machine: Machine, trainer: Object) -> Object:
    """A deep copy of a trainer at its `train()` call, because the script may later change objects in it, such as its
    configuration.
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
