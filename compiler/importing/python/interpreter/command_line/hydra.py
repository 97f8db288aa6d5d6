"""Compute the configuration that hydra passes to a script's main function: `@hydra.main(config_path=...,
config_name=...)`.
"""

from __future__ import annotations

import ast
import posixpath
import re

from xpc.compiler.importing.python.interpreter.files import contents, namespace, scalar
from xpc.compiler.importing.python.interpreter.functions import dotted
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import OPEN, Class, Function, Instance, Table, Unknown

REFERENCE = re.compile(r"\$\{([\w.]+)\}")
PACKAGE = re.compile(rb"\s*#\s*@package\s+([\w.]+)")
"""Matches the comment of a config file that states where its keys belong, such as `# @package _global_`."""
OVERRIDE = re.compile(r"(\+\+|\+|~)?([\w./@-]+)(?:=(.*))?", re.S)
"""Matches an override on the command line, such as `lr=1e-5`, `+model=qwen` or `~eval`."""
PER_WORD, PER_LETTER = 20, 0.25
"""Costs in interpreter steps: PER_WORD of an override on the command line, PER_LETTER of a byte of a config file."""
MOST = 20
"""The largest number of files from which one configuration is composed."""


def configuration(machine: Machine, function: Function) -> object:
    """The configuration that hydra passes to a function with its decorator. It is composed of the config file, the
    files in its `defaults` and the command's overrides. None if hydra does not call the function, or if the file cannot
    be read.
    """
    for one in getattr(function.node, "decorator_list", []):
        if isinstance(one, ast.Call) and dotted(one) in ("hydra.main", "pydra.main", "main"):
            words = {key.arg: machine.evaluate(key.value) for key in one.keywords}
            if isinstance(words.get("base"), Class):
                return _of_class(machine, words["base"], one)
            folder = machine.option("config_path") or words.get("config_path", ".")
            name = machine.option("config_name") or words.get("config_name")
            if isinstance(folder, str) and name is None and dotted(one) == "hydra.main":
                how = "without a default: `--set config_name=VALUE` gives it"
                return machine.unknown(one, f"the script takes `--config-name` from its command line, {how}")
            if not isinstance(folder, str) or not isinstance(name, str):
                return None
            folder = posixpath.normpath(posixpath.join(posixpath.dirname(function.label), folder))
            machine.command_line.append(machine.location(one))
            changes = list(dict.fromkeys(machine.positional_words()))
            found = _file(machine, folder, name.removesuffix(".yaml"), [MOST], changes)
            if name in machine.stored:
                found = merged([structured(machine, machine.stored[name], one), *([] if found is None else [found])])
            if found is None:
                return None
            for word in changes:
                _change(machine, found, word, folder, one)
            return namespace(_resolved(found, found, machine, one))
    return None


def _of_class(machine: Machine, kind: object, node: ast.AST) -> object:
    """The configuration that the library pydra makes. It is an object of the class in the decorator
    (`@pydra.main(base=Config)`), changed by the overrides in the command (`lr=1e-5`) and in `--set lr=1e-5`.
    """
    machine.command_line.append(machine.location(node))
    made = machine.call(kind, [], {}, node)
    if isinstance(made, Instance):
        words = dict(one.split("=", 1) for one in machine.positional_words() if "=" in one)
        for name in made.attributes:
            text = words.get(name, machine.option(name))
            if text is not None:
                made.attributes[name], made.locations[name] = scalar(text), machine.location(node)
    return made


def command_line(machine: Machine) -> Table:
    """Compute `OmegaConf.from_cli()`: the words `key=value` of the command."""
    out = Table()
    for word in machine.positional_words():
        _change(machine, out, f"++{word}", "", ast.Pass(lineno=0))
    return out


def structured(machine: Machine, value: object, node: ast.AST) -> Table:
    """The fields of a dataclass or of its object, with their values; unknown if the script does not define the
    class.
    """
    made = machine.call(value, [], {}, node) if isinstance(value, Class) else value
    if isinstance(made, dict):
        return Table(made, getattr(made, "locations", {}))
    if not isinstance(made, Instance):
        return Table({OPEN: machine.unknown(node, "the fields of a class that is not in the script")})
    inner = {key: structured(machine, one, node) if isinstance(one, Instance) else one
             for key, one in made.attributes.items()}  # fmt: skip
    return Table(inner, made.locations)


def merged(tables: list[Table]) -> Table:
    """Compute `OmegaConf.merge(...)`."""
    out = Table()
    for one in tables:
        _merge(out, one)
    return out


def _change(machine: Machine, root: Table, word: str, folder: str, node: ast.AST) -> None:
    """Apply an override of the command line to the configuration: `key=value`, `+group=choice`, or `~key`."""
    found = OVERRIDE.fullmatch(word)
    if found is None or found[2].startswith("hydra"):
        return
    sign, path, text = found.groups()
    machine.count(node, PER_WORD)
    *above, last = re.split(r"[./]", path.partition("@")[2] or path)
    table: object = root
    for part in above:
        inner = table.get(part) if isinstance(table, dict) else None
        if not isinstance(inner, dict) and isinstance(table, Table):
            inner = table[part] = Table()
        table = inner
    if not isinstance(table, Table):
        return
    if sign == "~":
        table.pop(last, None)
        return
    if sign == "+" and folder and text is not None:
        group = path.partition("@")[0]
        inner = _file(machine, posixpath.join(folder, group), text, [MOST], [])
        if inner is not None:
            name = posixpath.join(folder, group, f"{text}.yaml")
            _placed(machine, root, name, path.partition("@")[2] or group, inner)
            return
    table[last] = scalar(text or "")
    table.locations[last] = machine.location(node)


def _placed(machine: Machine, out: Table, path: str, where: str, inner: Table) -> None:
    """Merge a file of a config group into a configuration. Its keys are put under the group's name, or where its
    `@package` comment says.
    """
    stated = PACKAGE.match(machine.read(path) or b"")
    parts = stated[1].decode().split(".") if stated is not None else where.split("/")
    for part in reversed(parts):
        inner = Table({part: inner}) if part not in ("_global_", "") else inner
    _merge(out, inner)


def _chosen(changes: list[str], group: str, choice: object) -> object:
    """The name of the file to read for a group of config files: the name in the command (`model=qwen`), or else
    `choice`, the name in `defaults`.
    """
    for one in changes:
        key, equals, value = one.partition("=")
        if equals and key == group:
            changes.remove(one)
            return value
    return choice


def _file(machine: Machine, folder: str, name: str, left: list[int], changes: list[str]) -> Table | None:
    """Read a config file and merge it with the files in its `defaults`: the item `- model: qwen` names the file
    `model/qwen.yaml`.

    `changes` are the overrides in the command. An override that selects another file of a group is applied here and
    removed from `changes`. `left` is a list with one number, how many further files may be read. Returns None if the
    file cannot be read.
    """
    left[0] -= 1
    path = posixpath.join(folder, f"{name}.yaml")
    machine.count(ast.Pass(lineno=0), int(len(machine.read(path) or b"") * PER_LETTER))
    own = contents(machine.read, path) if left[0] >= 0 else None
    if own is None:
        return None
    listed = own.pop("defaults", None)
    out = Table()
    merged = False
    for one in listed if isinstance(listed, list) else []:
        if one == "_self_":
            _merge(out, own)
            merged = True
        elif isinstance(one, str):
            _merge(out, _file(machine, folder, one, left, changes) or Table())
        elif isinstance(one, dict):
            for group, choice in one.items():
                words = str(group).removeprefix("override ").removeprefix("optional ").strip("/")
                where, _, package = words.partition("@")
                choice = _chosen(changes, where, choice)
                if not isinstance(choice, str) or where.startswith("hydra"):
                    continue
                inner = _file(machine, posixpath.join(folder, where), choice, left, changes)
                if inner is not None:
                    location = posixpath.join(folder, where, f"{choice}.yaml")
                    _placed(machine, out, location, package or where, inner)
    if not merged:
        _merge(out, own)
    return out


def _merge(into: Table, other: Table) -> None:
    for key, value in other.items():
        if isinstance(value, Table) and isinstance(into.get(key), Table):
            _merge(into[key], value)
        else:
            into[key] = value
            if key in other.locations:
                into.locations[key] = other.locations[key]


def _resolved(value: object, root: Table, machine: Machine, node: ast.AST) -> object:
    """A value in which references such as `${model.name}` are replaced by the referenced values."""
    if isinstance(value, Table):
        return Table({key: _resolved(one, root, machine, node) for key, one in value.items()}, value.locations)
    if isinstance(value, list):
        return [_resolved(one, root, machine, node) for one in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    whole = REFERENCE.fullmatch(value)
    if whole is not None:
        return _at(root, whole[1], machine, node)
    out = value
    for found in REFERENCE.finditer(value):
        inner = _at(root, found[1], machine, node)
        if isinstance(inner, Unknown):
            return inner
        out = out.replace(found[0], str(inner))
    return machine.unknown(node, f"hydra computes `{value[:60]}`") if "${" in out else out


def _at(root: Table, path: str, machine: Machine, node: ast.AST) -> object:
    value: object = root
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    plain = isinstance(value, str) and "${" in value
    return machine.unknown(node, f"hydra computes `{path[:60]}`") if value is None or plain else value
