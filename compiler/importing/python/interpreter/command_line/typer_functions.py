"""Read functions that typer and click call with arguments from the command line, and the fields that dataclasses
declare.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from xpc.compiler.importing.python.interpreter.functions import dotted, is_library
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.parsed_classes import value_of
from xpc.compiler.importing.python.interpreter.values import (
    NO_DEFAULT,
    Argument,
    Class,
    Function,
    Instance,
    Location,
    Name,
    Object,
    Table,
    Unknown,
)
from xpc.compiler.importing.text.entries import Entry
from xpc.grammar.record import record

REQUIRED = Name("<required>")
"""The default of an option that the command must state."""


@record
class Option:
    """A parameter of a function that typer or click calls: the names of its option, its default, and the annotation of
    its type. A parameter without an option gets a positional word of the command.
    """

    parameter: str
    names: tuple[str, ...]
    default: object
    kind: str
    location: Location


def register(machine: Machine, made: Function) -> None:
    """Record a function that is a command of a typer app or a click group, such as one with `@app.command("sft")`."""
    for one in getattr(made.node, "decorator_list", []):
        call = one if isinstance(one, ast.Call) else None
        if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr != "command":
            continue
        owner = machine.evaluate(call.func.value)
        if not isinstance(owner, Function) and getattr(owner, "path", "") != "typer.Typer":
            continue
        words = [machine.evaluate(each) for each in (*call.args[:1], *(key.value for key in call.keywords[:1]))]
        named = next((each for each in words if isinstance(each, str)), made.name.replace("_", "-"))
        machine.commands.setdefault(id(owner), {})[named] = made


def run(machine: Machine, owner: object, node: ast.AST) -> object:
    """Interpret a call of a typer app, a click group or a click command: the function that the command's words select
    is called. NotImplemented for any other value.
    """
    commands = machine.commands.get(id(owner), {})
    function, word = (owner if isinstance(owner, Function) and _is_command(owner) else None), 1
    if len(commands) == 1 and not isinstance(owner, Function):
        function = next(iter(commands.values()))
    elif commands:
        machine.use("1")
        function, word = commands.get(machine.given.get("1", "")), 2
        if function is None:
            machine.command_line.append(machine.location(node))
            return Unknown(
                "the script takes a subcommand from its command line: `--set 1=NAME` gives it", machine.location(node)
            )
    if function is None:
        return NotImplemented
    machine.command_line.append(machine.location(node))
    return machine.call(function, [], dict(given(machine, function, word)), node)


def _is_command(function: Function) -> bool:
    """Whether a function is a click command, so that click calls it."""
    names = [dotted(one) for one in getattr(function.node, "decorator_list", [])]
    return any(one in ("click.command", "click.option", "click.argument") for one in names)


def given(machine: Machine, function: Function, word: int) -> Iterator[tuple[str, Argument]]:
    """The arguments with which typer or click calls a function. Each has its value from the command or else its
    default. `word` is the index of the function's first positional word in the command.
    """
    scopes, label = machine.scopes, machine.label
    machine.scopes, machine.label = list(function.scopes), function.label
    options = [*_clicks(machine, function)] if _is_click(function) else [*_typed(machine, function)]
    machine.scopes, machine.label = scopes, label
    for one in options:
        if not one.names:
            machine.use(str(word), one.parameter)
            stated = machine.given.get(one.parameter, machine.given.get(str(word)))
            word += 1
            found = None if stated is None else one.location.entry(one.parameter, stated)
        else:
            machine.use(*one.names)
            found = next(
                (each for name in one.names if (each := _stated(machine, name, one.location)) is not None), None
            )
        if found is not None:
            location = Location(found.file, found.line)
            yield one.parameter, Argument(value_of(found, one.kind, location), location)
        elif one.default == REQUIRED:
            name = one.names[0] if one.names else one.parameter
            why = f"the script takes `--{name}` from its command line, without a default: `--set {name}=VALUE` gives it"
            yield one.parameter, Argument(Unknown(why, one.location), one.location)
        else:
            yield one.parameter, Argument(one.default, one.location)


def _stated(machine: Machine, name: str, location: Location) -> Entry | None:
    """The value of an option in the command or in `--set`. If `--set` contains `no_NAME`, the value is False."""
    entries = machine.command.arguments if machine.command is not None else {}
    if f"no_{name}" in machine.given:
        machine.use(f"no_{name}")
        return location.entry(name, False)
    if name in entries:
        return entries[name]
    return location.entry(name, machine.given[name]) if name in machine.given else None


def _is_click(function: Function) -> bool:
    return any(dotted(one).startswith("click.") for one in getattr(function.node, "decorator_list", []))


def _typed(machine: Machine, function: Function) -> Iterator[Option]:
    """The parameters of a function that typer calls, such as `lr: float = typer.Option(1e-5, "--lr")`, also with
    `Annotated`.
    """
    spec = function.node.args
    names = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(spec.defaults)) + list(spec.defaults)
    for one, node in [*zip(names, defaults), *zip(spec.kwonlyargs, spec.kw_defaults)]:
        value = REQUIRED if node is None else machine.evaluate(node)
        kind, declared = _annotation(machine, one.annotation)
        if isinstance(value, Object) and value.path.startswith("typer.") and value.last in ("Option", "Argument"):
            declared = value
            first = value.argument("default", 0)
            value = None if first is None else REQUIRED if first.value is Ellipsis else first.value
        words = [] if declared is None else [each.value for each in declared.positional]
        word = declared.last == "Argument" if declared is not None else node is None
        yield Option(one.arg, () if word else _names(words, one.arg), value, kind, Location(function.label, one.lineno))


def _annotation(machine: Machine, node: ast.expr | None) -> tuple[str, Object | None]:
    """The type in an annotation, and the option in it: `Annotated[float, typer.Option("--lr")]` has both."""
    parts = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
    if isinstance(node, ast.Subscript) and parts and dotted(node.value).endswith("Annotated"):
        values = [machine.evaluate(one) for one in parts[1:]]
        return ast.unparse(parts[0]), next((one for one in values if isinstance(one, Object)), None)
    return "" if node is None else ast.unparse(node), None


def _names(words: list[object], parameter: str) -> tuple[str, ...]:
    """The names of an option, without dashes: `lr` for `--lr`. If `words` contain no option, the name is the
    parameter's.
    """
    texts = [each for one in words if isinstance(one, str) for each in one.split("/")[:1] if each.startswith("--")]
    return tuple(one.lstrip("-").replace("-", "_") for one in texts) or (parameter,)


def _clicks(machine: Machine, function: Function) -> Iterator[Option]:
    """The parameters of a function with `@click.option("--lr", default=1e-5)` and `@click.argument("data")`."""
    for node in function.node.decorator_list if not isinstance(function.node, ast.Lambda) else []:
        made = machine.evaluate(node) if dotted(node) in ("click.option", "click.argument") else None
        if not isinstance(made, Object):
            continue
        words = [one.value for one in made.positional if isinstance(one.value, str)]
        plain = next((one for one in words if not one.startswith("-")), None)
        names = _names(list(words), "")
        parameter = plain or names[0]
        default, flag, required, kind = (made.keywords.get(one) for one in ("default", "is_flag", "required", "type"))
        value = None if default is None else default.value
        switch = flag is not None and flag.value is True
        needed = required.value if required is not None else made.last == "argument"
        if default is None and (switch or needed):
            value = False if switch else REQUIRED
        note = type(value).__name__ if kind is None else getattr(kind.value, "last", "").lower()
        note = "bool" if switch else note if note in KINDS else "str"
        yield Option(parameter, () if made.last == "argument" else names, value, note, made.location)


KINDS = ("int", "float", "bool", "str")
"""The types to which click and typer convert a word of the command."""


def fields(machine: Machine, value: object, node: ast.AST) -> object:
    """The value of `dataclasses.fields` for a class or an object of the script. NotImplemented for other values."""
    kind = value.kind if isinstance(value, Instance) else value
    if not isinstance(kind, Class):
        return NotImplemented
    if is_library(kind.base()):
        return machine.unknown(node, "the fields of a library's class")
    owners = {name: one for one in reversed(kind.lineage()) for name in one.fields}
    return [_field(machine, name, one) for name, one in owners.items()]


def _field(machine: Machine, name: str, kind: Class) -> Instance:
    location = kind.locations[name]
    stated = name in kind.attributes
    default = field_default(machine, kind.attributes[name]) if stated else Name("dataclasses.MISSING")
    note = kind.annotations.get(name, "")
    made = {"name": name, "type": Name(note), "default": default, "init": True, "metadata": Table()}
    return Instance(Class("Field", [], location), made, dict.fromkeys(made, location))


def field_default(machine: Machine, value: object) -> object:
    """The default of a dataclass's field."""
    if not isinstance(value, Object) or value.last not in ("field", "Field"):
        return value
    if "default" in value.keywords:
        return value.keywords["default"].value
    factory = value.keywords.get("default_factory")
    if factory is not None:
        return machine.call(factory.value, [], {}, ast.Pass(lineno=value.location.line))
    if value.last == "Field" and value.positional:
        return value.positional[0].value
    return Unknown(NO_DEFAULT, value.location)


def option_default(value: object) -> object:
    """The default of a parameter: 3 for `typer.Option(3)`. Any other value is itself the default."""
    if isinstance(value, Object) and value.last in ("Option", "Argument") and value.path.startswith("typer"):
        return value.positional[0].value if value.positional else None
    return value
