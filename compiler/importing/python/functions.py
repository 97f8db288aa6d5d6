"""Functions of Python and of libraries that a script's values pass through, computed without executing anything."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.values import (
    LONGEST,
    Argument,
    Bound,
    Choice,
    Class,
    Column,
    Function,
    Instance,
    Name,
    Object,
    Place,
    Row,
    Scalar,
    Table,
    Text,
    Unknown,
)

if TYPE_CHECKING:
    from xpc.compiler.importing.python.expressions import Expressions
    from xpc.compiler.importing.python.machine import Machine

EXIT = Name("<exit>")
"""What a call returns after which the script goes on nowhere."""
BUILTINS = {
    "abs", "all", "any", "bool", "dict", "enumerate", "exit", "filter", "float", "getattr", "hasattr", "int",
    "isinstance", "len", "list", "map", "max", "min", "next", "object", "open", "print", "quit", "range", "repr", "reversed",
    "round", "set", "setattr", "sorted", "str", "sum", "super", "tuple", "type", "vars", "zip", "Exception", "ValueError",
    "RuntimeError", "input", "globals", "locals", "iter", "callable", "property", "staticmethod", "classmethod", "exec",
    "eval", "frozenset", "id", "issubclass", "format", "display", "get_ipython", "__import__",
}  # fmt: skip
CONFIGS = ("Config", "Arguments", "TrainingArgs")
TRAINERS = {
    "SFTTrainer": "sft", "DPOTrainer": "dpo", "GRPOTrainer": "grpo", "KTOTrainer": "kto", "RewardTrainer": "reward",
    "RLOOTrainer": "rloo", "ORPOTrainer": "orpo", "CPOTrainer": "cpo", "GKDTrainer": "distill", "Trainer": "sft",
    "UnslothTrainer": "sft",
}  # fmt: skip
"""The trainers, with their methods."""
LIBRARIES = ("trl", "transformers", "peft", "unsloth", "datasets", "torch", "accelerate")


def dotted(node: ast.expr) -> str:
    """The dotted name of a decorator, with or without arguments."""
    if isinstance(node, ast.Call):
        return dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def kind(value: object) -> str:
    """The kind of a value, in the names of methods."""
    return {Table: "dict", Text: "str", Column: "column", Row: "row"}.get(type(value), type(value).__name__)


def is_library(path: str) -> bool:
    """Whether a name is one of the training libraries."""
    return path.partition(".")[0] in LIBRARIES


def is_trainer(path: str) -> bool:
    """Whether a path is the class of a trainer that can be imported."""
    return path.rpartition(".")[2] in TRAINERS and is_library(path)


def is_settings(value: Object) -> bool:
    """Whether an object is a configuration, whose attributes are its arguments."""
    return value.last.endswith(CONFIGS) or value.last in TRAINERS


def attribute(value: Name, name: str) -> object:
    """An attribute of a library's name."""
    path = f"{value.path}.{name}"
    return {"os.sep": "/", "os.curdir": ".", "sys.argv": Name("sys.argv"), "math.inf": Name("math.inf")}.get(
        path, Name(path)
    )


def variable(machine: Expressions, key: object, default: object, node: ast.AST) -> object:
    """An environment variable: the value that the script sets, otherwise the default in the script."""
    environment = getattr(machine, "environment", {})
    if isinstance(key, str) and key in environment:
        return environment[key].value
    if default is not None:
        return default
    return machine.unknown(node, f"the environment variable {key if isinstance(key, str) else ''} decides")


def path_join(*names: str) -> str:
    """Paths that are put together."""
    return posixpath.normpath(posixpath.join(*names)) if any(names) else ""


def percent(machine: Expressions, left: str, right: object, node: ast.AST) -> object:
    """`"text %s" % value`."""
    values = right if isinstance(right, tuple) else (right,)
    pieces = left.replace("%d", "%s").split("%s")
    if len(pieces) != len(values) + 1 or any("%" in one.replace("%%", "") for one in pieces):
        return machine.unknown(node, "a text that is put together in a form that is not read")
    parts: list[object] = [pieces[0].replace("%%", "%")]
    for value, piece in zip(values, pieces[1:]):
        parts += [value, piece.replace("%%", "%")]
    return machine.joined(parts, node)


def contains(left: object, right: object, positive: bool) -> bool | None:
    """Whether a value is in another one; None if it is not known."""
    if isinstance(right, dict) and isinstance(left, str | int):
        found = left in right
    elif isinstance(left, str) and isinstance(right, str):
        found = left in right
    elif isinstance(left, (*Scalar, Name)) and isinstance(right, list | tuple):
        if not all(isinstance(one, (*Scalar, Name)) for one in right):
            return None
        found = any(type(one) is type(left) and one == left for one in right)
    else:
        return None
    return found is positive


def removed(machine: Machine, owner: dict[object, object], key: object) -> object:
    """Remove a key from a dict, and return its value."""
    value = owner[key]
    machine.write(owner, key, value)  # a branch remembers that the dict had it
    del owner[key]
    return value


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


PATH_PARTS: dict[str, Callable[[str], object]] = {
    "parent": lambda path: posixpath.dirname(path) or (".." if path == "." else "."),
    "parents": lambda path: [PATH_PARTS["parent"](path), *([".."] * 3)],
    "name": posixpath.basename,
    "stem": lambda path: posixpath.basename(path).rpartition(".")[0] or posixpath.basename(path),
    "suffix": lambda path: posixpath.splitext(path)[1],
}
"""Attributes of a path, which is a text here."""


def is_row(value: object) -> bool:
    """Whether a value is a row of data, or a line of a file."""
    if isinstance(value, tuple):
        return any(is_row(one) for one in value)
    return isinstance(value, Row) or (isinstance(value, Object) and value.path == "<line>")


def rows_of(value: Object) -> list[object] | None:
    """What a loop over a file, its JSON or a data set follows: one row, for each of them; None for another value."""
    if value.path == "open" or (value.last in ("readlines", "splitlines", "open") and opened(value) is not None):
        return [Object("<line>", [], {}, value.place, opened(value) or value)]
    if value.last in ("iterrows", "itertuples") and any(is_data(one) for one in lineage(value)):
        return [(0, Row(source=value))] if value.last == "iterrows" else None
    if value.last in ("load", "loads", "Reader", "to_dict", "read_json", "read_csv", "read_parquet", "load_dataset", "shuffle", "select", "map", "filter", "iter_rows", "[]"):
        data = any(is_data(one) for one in lineage(value))
        if value.path in ("json.load", "json.loads") or data:
            return [Row(source=value)]
    return None


def lineage(value: Object) -> list[Object]:
    """The objects whose methods made an object, the object itself first."""
    out = [value]
    while isinstance(out[-1].receiver, Object) and len(out) < 40:
        out.append(out[-1].receiver)
    return out


def is_data(value: Object) -> bool:
    """Whether an object is a data set."""
    return value.last in ("load_dataset", "load_from_disk", "read_json", "read_csv", "read_parquet")


def opened(value: Object) -> Object | None:
    """The file that an object reads."""
    return next((one for one in lineage(value) if one.path in ("open", "pathlib.Path.open", "pathlib.Path.read_text")), None)


def strips(conditions: list[ast.expr]) -> bool:
    """Whether conditions only leave out empty lines."""
    return all("strip" in ast.unparse(one) or isinstance(one, ast.Name) for one in conditions)


# -- calls of libraries ----------------------------------------------------------------------------------------------


def recorded(machine: Machine, made: Object) -> Object:
    """Record a call."""
    machine.calls.append(made)
    return made


def library(machine: Machine, function: Name | Object, positional: list[Argument], keywords: dict[str, Argument],
            node: ast.AST) -> object:  # fmt: skip
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
    """A copy of a trainer with all that it has, because the script may change the model and the tokenizer afterwards."""
    from copy import deepcopy

    try:
        return deepcopy(trainer)
    except RecursionError:
        return trainer


def first(positional: list[Argument], keywords: dict[str, Argument], name: str = "") -> object:
    """The first argument, or the one with a name; None if there is none."""
    if positional:
        return positional[0].value
    return keywords[name].value if name in keywords else None


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


# -- methods of texts, lists and dicts -------------------------------------------------------------------------------


def method(machine: Machine, bound: Bound, positional: list[Argument], keywords: dict[str, Argument],
           node: ast.AST) -> object:  # fmt: skip
    """Call a method of a text, a list, a dict, a row or a column."""
    assert isinstance(bound.function, Name)
    name, owner = bound.function.last, bound.receiver
    values = [one.value for one in positional]
    for unknown in values:
        if isinstance(unknown, Unknown) and isinstance(owner, str | Text):
            return Unknown(unknown.why, unknown.place)
    if isinstance(owner, str | Text) and name == "format":
        return formatted(machine, owner, values, keywords, node)
    if isinstance(owner, str):
        return text_method(machine, owner, name, values, node)
    if isinstance(owner, list):
        return list_method(machine, owner, name, values, node)
    if isinstance(owner, dict):
        return dict_method(machine, owner, name, positional, keywords, node)
    if isinstance(owner, Row):
        if name == "get" and values and isinstance(values[0], str):
            return machine.item(owner, values[0], node)
        return machine.unknown(node, f"`{name}` of a row")
    if isinstance(owner, Column) and name == "split" and not owner.batch:
        return Object("str.split", [], {}, machine.place(node), owner)
    if isinstance(owner, Column | Text) and name in ("strip", "rstrip", "lstrip"):
        return Object(f"str.{name}", [], {}, machine.place(node), owner)
    return machine.unknown(node, f"`{name}` of a value that is not known")


def formatted(machine: Machine, owner: str | Text, values: list[object], keywords: dict[str, Argument],
              node: ast.AST) -> object:  # fmt: skip
    """`text.format(...)`, for fields without a format."""
    import string

    parts: list[object] = []
    automatic = 0
    for piece in owner.parts if isinstance(owner, Text) else [owner]:
        if not isinstance(piece, str):
            parts.append(piece)
            continue
        try:
            fields = list(string.Formatter().parse(piece))
        except ValueError:
            return machine.unknown(node, "a format that Python refuses")
        for literal, field_, spec, conversion in fields:
            parts.append(literal)
            if field_ is None:
                continue
            if spec or conversion:
                return machine.unknown(node, "a format of a value")
            if field_ == "":
                index: int | None = automatic
                automatic += 1
            else:
                index = int(field_) if field_.isdecimal() and len(field_) < 4 else None
            if index is not None and index < len(values):
                parts.append(values[index])
            elif index is None and field_ in keywords:
                parts.append(keywords[field_].value)
            else:
                return machine.unknown(node, f"a text with the field `{field_[:40]}`, which nothing gives")
    return machine.joined(parts, node)


STRING_METHODS: dict[str, Callable[..., object]] = {
    one: getattr(str, one)
    for one in ("strip", "lstrip", "rstrip", "lower", "upper", "title", "startswith", "endswith", "replace", "split",
                "rsplit", "removeprefix", "removesuffix", "partition", "rpartition", "isdigit", "splitlines", "capitalize")
}  # fmt: skip
PATH_METHODS = ("resolve", "absolute", "expanduser", "as_posix", "__str__")


def text_method(machine: Machine, owner: str, name: str, values: list[object], node: ast.AST) -> object:
    """A method of a known text, which may be a path."""
    if name == "join" and values:
        items = values[0]
        if not isinstance(items, list | tuple):
            return machine.unknown(node, "a text of items that are not known")
        parts: list[object] = []
        for n, one in enumerate(items):
            parts += [owner, one] if n else [one]
        return machine.joined(parts, node)
    if name in PATH_METHODS:
        return owner
    if name in ("mkdir", "exists", "is_file", "is_dir", "glob", "iterdir", "read_text", "open", "write_text"):
        made = Object(f"pathlib.Path.{name}", [Argument(owner, machine.place(node))], {}, machine.place(node), owner)
        return made if name in ("read_text", "open") else machine.unknown(node, "the files of the machine decide")
    simple = all(isinstance(one, (*Scalar, tuple)) for one in values)
    compute = STRING_METHODS.get(name)
    if compute is None or not simple:
        return machine.unknown(node, f"`{name}` of a text")
    try:
        if name == "replace" and len(owner) * max(1, len(str(values[-1]))) > LONGEST:
            return machine.unknown(node, "a text that is too long")
        return compute(owner, *values)
    except (TypeError, ValueError, IndexError):
        return machine.unknown(node, f"`{name}` with arguments that Python refuses")


def list_method(machine: Machine, owner: list[object], name: str, values: list[object], node: ast.AST) -> object:
    """A method of a list."""
    if name == "append" and values and len(owner) < LONGEST:
        machine.change(owner, [*owner, values[0]])
        return None
    if name == "extend" and values:
        more = values[0]
        known = isinstance(more, list | tuple) and len(owner) + len(more) < LONGEST
        items = list(more) if known else [machine.unknown(node, "items that are not known")]  # type: ignore[call-overload]
        machine.change(owner, [*owner, *items])
        return None
    if name == "copy":
        return list(owner)
    if name in ("insert", "pop", "remove", "sort", "reverse", "clear"):
        if name == "insert" and len(values) == 2 and isinstance(values[0], int):
            new = list(owner)
            new.insert(values[0], values[1])
            machine.change(owner, new)
            return None
        machine.change(owner, [Unknown(f"`{name}` changes the list", machine.place(node))] if name != "clear" else [])
    return machine.unknown(node, f"`{name}` of a list")


def dict_method(machine: Machine, owner: dict[object, object], name: str, positional: list[Argument],
                keywords: dict[str, Argument], node: ast.AST) -> object:  # fmt: skip
    """A method of a dict."""
    values = [one.value for one in positional]
    key = values[0] if values else None
    default = values[1] if len(values) > 1 else None
    if name in ("get", "pop", "setdefault") and isinstance(key, str | int):
        if key in owner:
            return removed(machine, owner, key) if name == "pop" else owner[key]
        if name == "setdefault":
            machine.set_item(owner, key, default, machine.place(node))
        return default
    if name == "update":
        more = values[0] if values else Table()
        if isinstance(more, dict):
            places = getattr(more, "places", {})
            for one, value in more.items():
                machine.set_item(owner, one, value, places.get(one, machine.place(node)))
        else:
            for one in list(owner):
                machine.set_item(owner, one, Unknown("the dict was updated with values that are not known",
                                                     machine.place(node), owner[one]), machine.place(node))  # fmt: skip
        for given, argument in keywords.items():
            machine.set_item(owner, given, argument.value, argument.place)
        return None
    if name == "items":
        return [(one, value) for one, value in owner.items()]
    if name in ("keys", "values"):
        return list(owner) if name == "keys" else list(owner.values())
    if name == "copy":
        return Table(owner, getattr(owner, "places", {}))
    return machine.unknown(node, f"`{name}` of a dict")


# -- known functions -------------------------------------------------------------------------------------------------

Arguments = list[Argument]
Keywords = dict[str, Argument]


def _environment(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    default = positional[1].value if len(positional) > 1 else keywords["default"].value if "default" in keywords else None
    return variable(machine, first(positional, keywords, "key"), default, node)


def _set_environment(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    if len(positional) == 2 and isinstance(positional[0].value, str):
        machine.write(machine.environment, positional[0].value, positional[1])  # type: ignore[arg-type]
    return None


def _path(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    names = [one.value for one in positional]
    if all(isinstance(one, str) for one in names):
        return path_join(*names) if names else "."  # type: ignore[arg-type]
    return next((one for one in names if isinstance(one, Unknown)), machine.unknown(node, "a path that is not known"))


def _same(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return positional[0].value if positional else None


def _dirname(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    name = first(positional, keywords)
    return (posixpath.dirname(name) or ".") if isinstance(name, str) else machine.unknown(node, "a path")


def _basename(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    name = first(positional, keywords)
    return posixpath.basename(name) if isinstance(name, str) else machine.unknown(node, "a path")


def _number(convert: type) -> Callable[..., object]:
    def number(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
        value = first(positional, keywords)
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) < 64):
            try:
                return convert(value)
            except (ValueError, OverflowError):
                return machine.unknown(node, "it is not a number")
        return value if isinstance(value, Unknown) else machine.unknown(node, "a number that is not known", value)

    return number


def _text(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, Unknown | Text | Column | Object | Choice | str):
        return value
    return str(value) if isinstance(value, Scalar) else machine.unknown(node, "a text of a value that is not a text")


def _truth(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    found = machine.truth(first(positional, keywords))
    return machine.unknown(node, "it depends on a value that is not known") if found is None else found


def _length(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, str | list | tuple | dict):
        return len(value)
    if isinstance(value, Column) and value.batch:
        return Column("<length>")
    return machine.unknown(node, "a length that is not known", value)


def _range(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    values = [one.value for one in positional]
    if values and values[-1] == Column("<length>"):
        from xpc.compiler.importing.python.expressions import EACH

        return [EACH]
    if values and all(isinstance(one, int) for one in values) and values[-1:] != [0]:
        items = range(*values)  # type: ignore[arg-type]
        if len(items) <= 256:
            return list(items)
    made = Object("range", positional, keywords, machine.place(node))
    return made


def _list(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if value is None or isinstance(value, list | tuple | dict):
        return list(value or [])
    return value if isinstance(value, Column | Unknown | Object) else machine.unknown(node, "a list that is not known")


def _tuple(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = _list(machine, positional, keywords, node)
    return tuple(value) if isinstance(value, list) else value


def _dict(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    out = Table()
    value = first(positional, keywords) if positional else out
    if isinstance(value, list) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        value = Table({key: inner for key, inner in value if isinstance(key, str | int)})
    if not isinstance(value, dict):
        return value if isinstance(value, Unknown) else machine.unknown(node, "a dict that is not known")
    out.update(value)
    out.places.update(getattr(value, "places", {}))
    for name, given in keywords.items():
        if name.startswith("**"):
            return machine.unknown(node, "`**` of a value that is not known")
        out[name], out.places[name] = given.value, given.place
    return out


def _zip(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    lists = [machine.iterated(one.value) for one in positional]
    if None in lists or not lists:
        return machine.unknown(node, "lists that are not known")
    return [tuple(one) for one in zip(*lists)]  # type: ignore[arg-type]


def _enumerate(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    items = machine.iterated(first(positional, keywords))
    return machine.unknown(node, "a list that is not known") if items is None else list(enumerate(items))


def _extreme(choose: Callable[..., object]) -> Callable[..., object]:
    def extreme(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
        values = [one.value for one in positional]
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = list(values[0])
        if values and all(isinstance(one, int | float) for one in values):
            return choose(values)
        known = [one for one in values if isinstance(one, int)]
        if choose is min and len(values) == 2 and known and any(
            isinstance(one, Unknown) and one.why == "a length that is not known" for one in values
        ):
            return known[0]  # `min(1000, len(dataset))`: a data set with fewer rows gives all of them
        return machine.unknown(node, "it depends on a value that is not known")

    return extreme


def _round(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    values = [one.value for one in positional]
    if values and all(isinstance(one, int | float) for one in values):
        return round(*values)  # type: ignore[call-overload]
    return machine.unknown(node, "a number that is not known")


def _getattr(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    if len(positional) >= 2 and isinstance(positional[1].value, str):
        found = machine.attribute(positional[0].value, positional[1].value, node)
        missing = isinstance(found, Unknown) and isinstance(positional[0].value, Instance | Class)
        return positional[2].value if missing and len(positional) > 2 else found
    return machine.unknown(node, "an attribute that is not known")


def _setattr(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    if len(positional) == 3 and isinstance(positional[1].value, str):
        machine.set_attribute(positional[0].value, positional[1].value, positional[2].value, positional[2].place)
    return None


def _hasattr(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    owner, name = (one.value for one in positional[:2]) if len(positional) > 1 else (None, None)
    if isinstance(owner, Instance) and owner.made is None and isinstance(name, str):
        return name in owner.attributes or owner.kind.find(name) is not None
    return machine.unknown(node, "it depends on the library")


def _isinstance(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value, kinds = (one.value for one in positional[:2]) if len(positional) > 1 else (None, None)
    names = {one.path for one in (kinds if isinstance(kinds, tuple) else (kinds,)) if isinstance(one, Name)}
    if isinstance(value, (*Scalar, list, tuple, dict)) and names <= {"str", "int", "float", "bool", "list", "dict", "tuple"}:
        own = "dict" if isinstance(value, dict) else type(value).__name__
        return own in names or (own == "bool" and "int" in names) if names else machine.unknown(node, "a type")
    return machine.unknown(node, "it depends on a type that is not known")


def _vars(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, Instance):
        return Table(value.attributes, value.places)
    return machine.unknown(node, "the attributes of a value that is not known")


def _exit(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return EXIT


def _nothing(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return None


def _true(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return True


def _bf16(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return machine.gpu_has_bf16


def _capability(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return (9, 0) if machine.gpu_has_bf16 else (7, 0)


def _partial(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    function = first(positional, keywords)
    return Bound(function, None, keywords) if len(positional) == 1 else machine.unknown(node, "a partial function")


def _run(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    function = first(positional, keywords)
    return machine.call(function, [], {}, node) if isinstance(function, Function) else NotImplemented


def _configured(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    kind_ = first(positional, keywords)
    machine.command_line.append(machine.place(node))
    return machine.construct(kind_, [], {}, node) if isinstance(kind_, Class) else NotImplemented


def _sort(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    texts = isinstance(value, list) and (all(isinstance(one, str) for one in value) or
                                         all(isinstance(one, int | float) for one in value))  # fmt: skip
    return sorted(value) if texts and not keywords else machine.unknown(node, "an order that is not known")  # type: ignore[type-var, arg-type]


def _loaded(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """The contents of a YAML or JSON file next to the script."""
    handle = first(positional, keywords)
    found = opened(handle) if isinstance(handle, Object) else None
    if isinstance(handle, Object) and handle.path == "<line>":
        return Row(source=handle.receiver)
    if isinstance(handle, Object) and (handle.path == "open" or handle.path.startswith("pathlib.Path.")):
        handle = first(handle.positional, handle.keywords, "file")
    if not isinstance(handle, str):
        return machine.unknown(node, "the contents of a file that is not known")
    from xpc.compiler.importing.python.files import contents

    value = contents(machine.read, handle)
    if value is None and found is not None and handle.endswith((".json", ".jsonl")):
        return Object("json.load", [Argument(handle, found.place)], {}, found.place, found)
    return machine.unknown(node, f"the contents of `{handle[:60]}`, which cannot be read here") if value is None else value


def _read(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return NotImplemented


KNOWN: dict[str, Callable[..., object]] = {
    "os.environ.get": _environment, "os.getenv": _environment, "os.environ.setdefault": _set_environment,
    "os.path.join": _path, "pathlib.Path": _path, "Path": _path, "os.path.abspath": _same, "os.path.realpath": _same,
    "os.path.expanduser": _same, "os.path.normpath": _path, "os.path.dirname": _dirname, "os.path.basename": _basename,
    "os.fspath": _same, "copy.deepcopy": _same, "copy.copy": _same, "int": _number(int), "float": _number(float),
    "str": _text, "bool": _truth, "len": _length, "range": _range, "list": _list, "set": _list, "tuple": _tuple,
    "dict": _dict, "zip": _zip, "enumerate": _enumerate, "min": _extreme(min), "max": _extreme(max),
    "sum": _extreme(sum), "round": _round, "getattr": _getattr, "setattr": _setattr, "hasattr": _hasattr,
    "isinstance": _isinstance, "vars": _vars, "asdict": _vars, "dataclasses.asdict": _vars, "exit": _exit, "quit": _exit,
    "sys.exit": _exit, "os._exit": _exit, "print": _nothing, "sorted": _sort, "torch.cuda.is_available": _true,
    "torch.cuda.is_bf16_supported": _bf16, "*.is_bfloat16_supported": _bf16, "torch.cuda.get_device_capability": _capability,
    "transformers.utils.is_torch_bf16_gpu_available": _bf16, "*.is_bf16_supported": _bf16,
    "functools.partial": _partial, "partial": _partial, "fire.Fire": _run, "typer.run": _run, "asyncio.run": _same,
    "tyro.cli": _configured, "yaml.safe_load": _loaded, "yaml.load": _loaded, "json.load": _loaded, "json.loads": _loaded,
    "yaml.full_load": _loaded, "toml.load": _loaded, "tomllib.load": _loaded, "OmegaConf.load": _loaded,
    "omegaconf.OmegaConf.load": _loaded, "types.SimpleNamespace": _dict, "textwrap.dedent": _same, "cast": _read,
}  # fmt: skip
"""Functions by their path; `*.name` is a function of any module."""
