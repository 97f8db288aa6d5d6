"""The files, paths and environment variables of a script. YAML and JSON become Python values, with the file and line of
each key. The functions of `os` for paths and variables are here, too.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Mapping

from xpc.compiler.importing.python.interpreter.functions import first, path_join
from xpc.compiler.importing.python.interpreter.machine import Arguments, Keywords, Machine
from xpc.compiler.importing.python.interpreter.values import Location, Namespace, Table, Unknown
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.importing.text.entries import Entry, Unreadable


def contents(read: Callable[[str], bytes | None], name: str) -> Table | None:
    """The contents of a YAML or JSON file; None if it is missing, unreadable or not a mapping."""
    data = read(name) if name.endswith((".yaml", ".yml", ".json")) else None
    if data is None:
        return None
    try:
        text = data.decode("utf-8-sig")
        return _table(jsontext.read(text, name) if text.lstrip().startswith("{") else yamltext.read(text, name))
    except (Unreadable, UnicodeDecodeError):
        return None


def scalar(text: str) -> object:
    """The value of a string as YAML reads it: `1e-5` is a float, `true` a bool, `[a, b]` a list."""
    try:
        return _value(yamltext.read(f"value: {text}", "")["value"])
    except (Unreadable, KeyError):
        return text


def namespace(value: object, nested: bool = True) -> object:
    """Convert a dict to an object whose attributes are the dict's keys. With `nested`, dicts inside the dict are
    converted, too.
    """
    if isinstance(value, dict):
        return Namespace(
            {key: namespace(one) if nested else one for key, one in value.items()}, getattr(value, "locations", {})
        )
    return [namespace(one) for one in value] if nested and isinstance(value, list) else value


def _table(entries: Mapping[str, Entry]) -> Table:
    locations: dict[object, Location] = {key: Location(one.file, one.line) for key, one in entries.items()}
    return Table({key: _value(one) for key, one in entries.items()}, locations)


def _value(entry: Entry) -> object:
    if isinstance(entry.value, dict):
        return _table(entry.value)
    return [_value(one) for one in entry.value] if isinstance(entry.value, list) else entry.value


VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


def _environment(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    default = (
        positional[1].value if len(positional) > 1 else keywords["default"].value if "default" in keywords else None
    )
    return machine.variable(first(positional, keywords, "key"), default, node)


def _set_environment(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    if len(positional) == 2 and isinstance(positional[0].value, str):
        machine.journal.write(machine.environment, positional[0].value, positional[1])  # type: ignore[arg-type]
    return None


def _path(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    names = [one.value for one in positional]
    if all(isinstance(one, str) for one in names):
        return path_join(*names) if names else "."  # type: ignore[arg-type]
    why = "it depends on a path that is not known"
    return next((one for one in names if isinstance(one, Unknown)), machine.unknown(node, why))


def first_argument(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute a function whose result the importer treats as its first argument, such as `os.path.abspath` or
    `copy.copy`.
    """
    return positional[0].value if positional else None


def _of_path(compute: Callable[[str], object]) -> Callable[..., object]:
    """Return a function that computes a part or a property of a path."""

    def computed(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
        name = first(positional, keywords)
        return compute(name) if isinstance(name, str) else machine.inherited(node, "a path", name)

    return computed


def _expanded(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `os.path.expandvars`, which replaces `$NAME` in a path by the value of the environment variable."""
    value = first(positional, keywords)
    if not isinstance(value, str):
        return first_argument(machine, positional, keywords, node)
    known = {name: one.value for name, one in machine.environment.items()} | dict(machine.given)
    for name in VARIABLE.findall(value):
        word = name[0] or name[1]
        if not isinstance(known.get(word), str):
            return machine.unknown(node, f"the environment variable {word[:40]} decides")
    return VARIABLE.sub(lambda found: str(known[found[1] or found[2]]), value)


def _exists(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    name = first(positional, keywords)
    if isinstance(name, str) and machine.read(name) is not None:
        return True
    machine.test_path(name, node)
    return (
        name if isinstance(name, Unknown) else machine.unknown(node, "it depends on the files of the training machine")
    )


OS_FUNCTIONS: dict[str, Callable[..., object]] = {
    **dict.fromkeys(("os.environ.get", "os.getenv"), _environment),
    **dict.fromkeys(("os.path.join", "os.path.normpath", "pathlib.Path", "Path"), _path),
    **dict.fromkeys(("os.path.abspath", "os.path.realpath", "os.path.expanduser", "os.fspath"), first_argument),
    **dict.fromkeys(("os.path.exists", "os.path.isfile", "os.path.isdir"), _exists),
    "os.environ.setdefault": _set_environment,
    "os.path.expandvars": _expanded,
    "os.path.isabs": _of_path(lambda name: name.startswith("/")),
    "os.path.dirname": _of_path(lambda name: posixpath.dirname(name) or "."),
    "os.path.basename": _of_path(posixpath.basename),
}
"""Maps the dotted name of a function of `os` to the function that computes its result."""
