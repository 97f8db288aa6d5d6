"""Compute the arguments that argparse returns. An argument has the value in the command or in `--set`, or else its
default.
"""

from __future__ import annotations

import ast
import re

from xpc.compiler.importing.python.interpreter.machine import PRESENT, TRUE, Machine
from xpc.compiler.importing.python.interpreter.values import Argument, Class, Instance, Name, Object, Unknown

TRAINS = re.compile("train|tune|sft|[dgo]po")
"""Matches the names of subcommands that train, such as `sft`."""


def parsed(machine: Machine, parser: Object, node: ast.AST) -> Instance:
    """Compute `parser.parse_args()`: an object with the arguments as attributes."""
    space = Instance(Class("Namespace", [], machine.location(node)))
    _complete(machine, parser)
    machine.command_line.append(machine.location(node))
    location = 0
    for call in _calls_below(parser, machine):
        machine.count(node)
        if call.last == "add_subparsers":
            location += 1
            _command(machine, call, space, location)
        if call.last == "set_defaults":
            for name, given in call.keywords.items():
                space.attributes[name], space.locations[name] = given.value, given.location
        if call.last != "add_argument":
            continue
        names = [one.value for one in call.positional if isinstance(one.value, str)]
        if not names:
            continue
        location += not names[0].startswith("-")
        long = next((one for one in names if one.startswith("--")), names[0])
        dest = call.keywords.get("dest")
        name = dest.value if dest is not None and isinstance(dest.value, str) else long.lstrip("-").replace("-", "_")
        stated = _stated(machine, call, names, name, location)
        space.attributes[name] = (
            _argument_default(machine, call, long) if stated is None else _typed(machine, call, stated)
        )
        space.locations[name] = call.location
    return space


def _command(machine: Machine, call: Object, space: Instance, location: int) -> None:
    """Set the name of the subcommand, which is a positional word of the command."""
    machine.use(str(location))
    dest = call.keywords.get("dest")
    if dest is not None and isinstance(dest.value, str):
        why = "the script takes a subcommand from its command line: `--set 1=NAME` gives it"
        space.attributes[dest.value] = machine.given.get(str(location)) or Unknown(why, call.location)
        space.locations[dest.value] = call.location


def _complete(machine: Machine, parser: Object) -> None:
    """Complete abbreviated names as argparse does: `--eval_step` becomes `--eval_steps` if no other name begins with
    `eval_step`.
    """
    names = {str(one.value).lstrip("-").replace("-", "_") for call in _calls_below(parser, machine)
             if call.last == "add_argument" for one in call.positional if str(one.value).startswith("--")}  # fmt: skip
    short = {key: [one for one in names if one.startswith(key)] for key in machine.given if key not in names}
    long = {key: found[0] for key, found in short.items() if len(found) == 1 and found[0] not in machine.given}
    machine.use(*long)
    if long:
        machine.given = {**machine.given, **{name: machine.given[key] for key, name in long.items()}}


def _stated(machine: Machine, call: Object, names: list[str], name: str, location: int) -> str | None:
    """The value that `--set` or the command gives to an argument, or None. An option has the `names`, such as `--lr`; a
    positional argument is stated by its name or its position (`location`, from 1).
    """
    if not names[0].startswith("-"):
        by_name = machine.given.get(name)
        machine.use(name, str(location))
        return machine.given.get(str(location)) if by_name is None else by_name
    words = [name, *(one.lstrip("-").replace("-", "_") for one in names if one.startswith("--"))]
    machine.use(*words)
    action = call.keywords.get("action")
    if action is not None and getattr(action.value, "last", "") == "BooleanOptionalAction":
        machine.use(f"no_{name}")
        off = machine.given.get(f"no_{name}")
        if off is not None:
            return "false"
    return next((found for one in dict.fromkeys(words) if (found := machine.given.get(one)) is not None), None)


def _typed(machine: Machine, call: Object, text: str) -> object:
    """Convert an argument's text to its type, such as `type=int` or `action="store_true"`."""
    kind, action, count = (call.keywords.get(one) for one in ("type", "action", "nargs"))
    act = getattr(action.value, "last", action.value) if action is not None else None
    if act in ("store_true", "store_false", "BooleanOptionalAction"):
        return act != "store_false" if text == PRESENT else text.lower() in TRUE
    const = call.keywords.get("const")
    if text == PRESENT:
        return const.value if const is not None else Unknown("the command gives this argument no value", call.location)
    if count is not None and count.value not in (None, "?"):
        return [_converted(machine, call, kind, one) for one in text.split()]
    return _converted(machine, call, kind, text)


def _converted(machine: Machine, call: Object, kind: Argument | None, text: str) -> object:
    if kind is None or kind.value in (Name("str"), Name("pathlib.Path"), Name("Path")):
        return text
    try:
        if kind.value in (Name("int"), Name("float")):
            return int(text) if kind.value == Name("int") else float(text)
    except ValueError:
        return Unknown(f"{text[:40]!r} is not a number", call.location)
    if kind.value == Name("bool"):
        return bool(text)  # as argparse does: with `type=bool`, even the text "False" gives True
    value = machine.call(kind.value, [Argument(text, call.location)], {}, ast.Pass(lineno=call.location.line))
    return Unknown("the script converts this argument", call.location) if isinstance(value, Object) else value


def _calls_below(value: Object, machine: Machine, depth: int = 0) -> list[Object]:
    """All method calls on a parser, and on the argument groups and subparsers that these calls return.

    Only the parser of one subcommand is used: the subcommand in the command, or else the only one with a name such as
    `train`. If there is neither, all parsers are used.
    """
    out: list[Object] = []
    stated = {str(number): machine.given[str(number)] for number in range(1, 9) if str(number) in machine.given}
    names = {one.positional[0].value for one in value.calls if one.last == "add_parser" and one.positional}
    likely = {one for one in names if TRAINS.search(str(one))}
    chosen = names & set(stated.values()) or (likely if len(likely) == 1 else set())
    for one in value.calls if depth < 4 else []:
        if one.last == "add_parser" and chosen and one.positional and one.positional[0].value not in chosen:
            continue
        out += [one, *_calls_below(one, machine, depth + 1)]
    return out


def _argument_default(machine: Machine, call: Object, long: str) -> object:
    """The default of an argument; unknown if the argument is required."""
    action, default, required = (call.keywords.get(one) for one in ("action", "default", "required"))
    act = action.value if action is not None else None
    if default is None:
        if act in ("store_true", "store_false"):
            return act == "store_false"
        if not long.startswith("-") or (required is not None and required.value is not False):
            name = long.lstrip("-").replace("-", "_")
            why = f"the script takes `{long}` from its command line, without a default: `--set {name}=VALUE` gives it"
            return Unknown(why, call.location)
        return None
    value, kind = default.value, call.keywords.get("type")
    numbers = kind is not None and kind.value in (Name("int"), Name("float"))
    return _converted(machine, call, kind, value) if isinstance(value, str) and numbers else value
