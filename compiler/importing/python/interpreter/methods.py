"""Compute calls of methods of strings, lists, dicts and rows."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable

from xpc.compiler.importing.python.interpreter.assignment import open_further, set_item
from xpc.compiler.importing.python.interpreter.attributes import attribute, item
from xpc.compiler.importing.python.interpreter.functions import path_join
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.texts import formatted, joined
from xpc.compiler.importing.python.interpreter.values import (
    LONGEST,
    OPEN,
    Argument,
    Bound,
    Class,
    Column,
    Instance,
    Name,
    Object,
    Row,
    Scalar,
    Splits,
    Table,
    Text,
    Unknown,
)


def method(
    machine: Machine, bound: Bound, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Compute a method call on a string, a list, a dict, a row or a column."""
    assert isinstance(bound.function, Name)
    name, owner = bound.function.last, bound.receiver
    values = [one.value for one in positional]
    for unknown in values:
        if isinstance(unknown, Unknown) and isinstance(owner, str | Text):
            return Unknown(unknown.why, unknown.location)
    if isinstance(owner, Instance) and owner.made is not None:
        _make_again(machine, owner.made, positional, keywords)
        return None
    if isinstance(owner, str | Text) and name == "format":
        return formatted(machine, owner, values, _with_columns(machine, owner, keywords, node), node)
    if isinstance(owner, str | Text) and name == "format_map" and values:
        mapping = {"**": Argument(Unknown("", machine.location(node), values[0]), machine.location(node))}
        return formatted(machine, owner, [], _with_columns(machine, owner, mapping, node), node)
    if isinstance(owner, str):
        return text_method(machine, owner, name, values, node)
    if isinstance(owner, list):
        return list_method(machine, owner, name, values, node)
    if isinstance(owner, Splits) and name not in DICT_METHODS:
        return Splits({key: _of_split(machine, one, name, positional, keywords, node) for key, one in owner.items()},
                      owner.locations)  # fmt: skip
    if isinstance(owner, dict):
        return dict_method(machine, owner, name, positional, keywords, node)
    if isinstance(owner, Class):
        return _validated(machine, owner, values[0] if values else None, node)
    if isinstance(owner, Row):
        if name == "get" and values and isinstance(values[0], str):
            return item(machine, owner, values[0], node)
        return machine.unknown(node, f"`{name}` of a row")
    if isinstance(owner, Column) and name in CHANGING:
        machine.changed_inside(machine.location(node))
    if isinstance(owner, Column) and name == "split" and not owner.batch:
        return Object("str.split", [], {}, machine.location(node), owner)
    if isinstance(owner, Column | Text) and name in ("strip", "rstrip", "lstrip"):
        return Object(f"str.{name}", [], {}, machine.location(node), owner)
    return machine.unknown(node, f"it depends on `{name}` of a value that is not known")


CHANGING = ("append", "insert", "extend", "pop", "remove", "reverse", "sort", "update", "setdefault", "clear")
"""Methods that change a list or a dict in place."""
FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")


def _with_columns(machine: Machine, text: object, keywords: dict[str, Argument], node: ast.AST) -> dict[str, Argument]:
    """The arguments of `text.format(**row)`, with the columns of the row that the text names."""
    out = {key: one for key, one in keywords.items() if not key.startswith("**")}
    names = [name for part in (text.parts if isinstance(text, Text) else (text,)) if isinstance(part, str)
             for name in FIELD.findall(part)]  # fmt: skip
    for one in (one for key, one in keywords.items() if key.startswith("**")):
        row = one.value.hidden if isinstance(one.value, Unknown) else one.value
        for name in names:
            if isinstance(row, Row) or (isinstance(row, dict) and name in row):
                out.setdefault(name, Argument(item(machine, row, name, node), one.location))
    return out


def _make_again(machine: Machine, made: Object, positional: list[Argument], keywords: dict[str, Argument]) -> None:
    """Interpret `super().__init__(...)` in a class whose base class belongs to a library: the arguments of this call
    replace those of the recorded object.
    """
    for left in [one for one in made.keywords if one not in keywords]:
        machine.journal.remove(made.keywords, left)  # type: ignore[arg-type]
    for key, one in keywords.items():
        machine.journal.write(made.keywords, key, one)  # type: ignore[arg-type]
    machine.journal.change(made.positional, [*positional])  # type: ignore[arg-type]


def _validated(machine: Machine, owner: Class, table: object, node: ast.AST) -> object:
    """Compute pydantic's class methods `model_validate` and `parse_obj`; no other class methods are computed."""
    if isinstance(table, Unknown):
        return table
    if not isinstance(table, dict):
        return machine.unknown(node, "it depends on values that are not known")
    locations = getattr(table, "locations", {})
    given = {str(key): Argument(one, locations.get(key, machine.location(node))) for key, one in table.items()}
    return machine.call(owner, [], given, node)


DICT_METHODS = ("get", "pop", "setdefault", "update", "items", "keys", "values", "copy")


def _of_split(
    machine: Machine, one: object, name: str, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Call a method of a `DatasetDict` for one of its datasets."""
    return machine.call(attribute(machine, one, name, node), positional, keywords, node)


STRING_METHODS: dict[str, Callable[..., object]] = {
    one: getattr(str, one)
    for one in (
        "strip", "lstrip", "rstrip", "lower", "upper", "title", "startswith", "endswith", "replace", "split", "rsplit",
        "removeprefix", "removesuffix", "partition", "rpartition", "isdigit", "splitlines", "capitalize",
    )
}  # fmt: skip
PATH_METHODS = ("resolve", "absolute", "expanduser", "as_posix", "__str__")
FILE_METHODS = ("mkdir", "exists", "is_file", "is_dir", "glob", "iterdir", "read_text", "open", "write_text")


def text_method(machine: Machine, owner: str, name: str, values: list[object], node: ast.AST) -> object:
    """Compute a method of a known string, which may be a path."""
    if name == "join" and values:
        items = values[0]
        if not isinstance(items, list | tuple):
            return machine.unknown(node, "it joins items that are not known")
        parts: list[object] = []
        for n, one in enumerate(items):
            parts += [owner, one] if n else [one]
        return joined(machine, parts, node)
    if (path := _path_method(owner, name, values)) is not None:
        return path
    if name in FILE_METHODS:
        return _file_method(machine, owner, name, node)
    simple = all(isinstance(one, Scalar) or _texts(one) for one in values)
    compute = STRING_METHODS.get(name)
    if compute is None or not simple:
        return machine.unknown(node, f"`{name}` of a text")
    try:
        if name == "replace" and (len(owner) + 1) * max(len(str(one)) for one in values) > LONGEST:
            return machine.unknown(node, "its text is too long")
        return compute(owner, *values)
    except (TypeError, ValueError, IndexError, OverflowError):
        return machine.unknown(node, f"Python refuses the arguments of this `{name}`")


def _path_method(owner: str, name: str, values: list[object]) -> str | bool | None:
    """Compute a method of a path, if its result does not depend on files. None for any other method."""
    if name in PATH_METHODS:
        return owner
    if name == "joinpath" and all(isinstance(one, str) for one in values):
        return path_join(owner, *map(str, values))
    if name == "with_suffix" and values and isinstance(values[0], str):
        return posixpath.splitext(owner)[0] + values[0]
    if name == "with_name" and values and isinstance(values[0], str):
        return path_join(posixpath.dirname(owner), values[0])
    return owner.startswith("/") if name == "is_absolute" else None


def _file_method(machine: Machine, owner: str, name: str, node: ast.AST) -> object:
    """Compute a method of a path that depends on a file of the training machine."""
    if name in ("exists", "is_file") and machine.read(owner) is not None:
        return True
    if name in ("exists", "is_file", "is_dir"):
        machine.test_path(owner, node)
    if name not in ("read_text", "open"):
        return machine.unknown(node, "it depends on the files of the training machine")
    location = machine.location(node)
    made = Object(f"pathlib.Path.{name}", [Argument(owner, location)], {}, location, owner)
    machine.calls.append(made)
    return made


def _texts(value: object) -> bool:
    """Whether a value is a tuple of strings, such as the argument of `name.startswith(("a", "b"))`."""
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


PURE = ("index", "count", "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset",
        "isdisjoint")  # fmt: skip
"""Methods that do not change their list or set."""


def list_method(machine: Machine, owner: list[object], name: str, values: list[object], node: ast.AST) -> object:
    """Compute a method of a list or a set, and make the change if the method changes it."""
    if name == "append" and values and len(owner) < LONGEST:
        machine.journal.change(owner, [*owner, values[0]])
        return None
    # `add` is a method of sets, which the interpreter represents as lists
    if name == "add" and values and len(owner) < LONGEST:
        if values[0] not in owner:
            machine.journal.change(owner, [*owner, values[0]])
        return None
    if name in ("remove", "discard") and values and all(isinstance(one, Scalar) for one in (*owner, values[0])):
        at = owner.index(values[0]) if values[0] in owner else len(owner)
        machine.journal.change(owner, [*owner[:at], *owner[at + 1 :]])
        return None
    if name in ("extend", "update") and values:
        more = values[0]
        known = isinstance(more, list | tuple) and len(owner) + len(more) < LONGEST
        items = list(more) if known else [machine.unknown(node, "it depends on items that are not known")]  # type: ignore[call-overload]
        machine.journal.change(owner, [*owner, *items])
        return None
    if name == "copy":
        return list(owner)
    if name not in PURE:
        if name == "insert" and len(values) == 2 and isinstance(values[0], int):
            new = list(owner)
            new.insert(values[0], values[1])
            machine.journal.change(owner, new)
            return None
        machine.journal.change(
            owner, [Unknown(f"`{name}` changes the list", machine.location(node))] if name != "clear" else []
        )
    return machine.unknown(node, f"`{name}` of a list")


def dict_method(
    machine: Machine,
    owner: dict[object, object],
    name: str,
    positional: list[Argument],
    keywords: dict[str, Argument],
    node: ast.AST,
) -> object:
    """Compute a method of a dict, and make the change if the method changes it."""
    values = [one.value for one in positional]
    key = values[0] if values else None
    default = values[1] if len(values) > 1 else None
    if name in ("get", "pop", "setdefault") and isinstance(key, str | int):
        if key in owner:
            return machine.journal.remove(owner, key) if name == "pop" else owner[key]
        if name == "setdefault":
            set_item(machine, owner, key, default, machine.location(node))
        return owner.get(OPEN, default)
    if name in ("pop", "setdefault") and values:
        open_further(machine, owner, f"`{name}` is called with a key that is not known", machine.location(node))
        return machine.unknown(node, "it is the item of a key that is not known")
    if name in ("items", "keys", "values") and set(owner) == {OPEN}:
        return machine.unknown(node, "it is a dict whose keys are not known")
    if name == "update":
        more = values[0] if values else Table()
        if isinstance(more, dict):
            locations = getattr(more, "locations", {})
            for one, value in more.items():
                set_item(machine, owner, one, value, locations.get(one, machine.location(node)))
        else:
            open_further(
                machine, owner, "the script updates the dict with values that are not known", machine.location(node)
            )
        for given, argument in keywords.items():
            set_item(machine, owner, given, argument.value, argument.location)
        return None
    if name == "items":
        return list(owner.items())
    if name in ("keys", "values"):
        return list(owner) if name == "keys" else list(owner.values())
    if name == "copy":
        return Table(owner, getattr(owner, "locations", {}))
    return machine.unknown(node, f"`{name}` of a dict")
