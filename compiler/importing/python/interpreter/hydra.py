"""The configuration that hydra gives a script's main function: `@hydra.main(config_path=..., config_name=...)`."""

from __future__ import annotations

import ast
import posixpath
import re

from xpc.compiler.importing.python.interpreter.files import contents, namespace
from xpc.compiler.importing.python.interpreter.functions import dotted
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Function, Table, Unknown

REFERENCE = re.compile(r"\$\{([\w.]+)\}")
MOST = 20
"""The most files of a configuration."""


def configuration(machine: Machine, function: Function) -> object:
    """The configuration with which hydra calls a function, merged with the files in its `defaults`; None for a function
    that hydra does not call.
    """
    for one in getattr(function.node, "decorator_list", []):
        if isinstance(one, ast.Call) and dotted(one) in ("hydra.main", "main"):
            words = {key.arg: machine.evaluate(key.value) for key in one.keywords}
            folder, name = words.get("config_path", "."), words.get("config_name")
            if not isinstance(folder, str) or not isinstance(name, str):
                return None
            folder = posixpath.normpath(posixpath.join(posixpath.dirname(function.label), folder))
            machine.command_line.append(machine.place(one))
            found = _file(machine, folder, name.removesuffix(".yaml"), [MOST])
            return None if found is None else namespace(_resolved(found, found, machine, one))
    return None


def _file(machine: Machine, folder: str, name: str, left: list[int]) -> Table | None:
    """A file merged with the files in its list `defaults`, such as `- model: qwen`, which is `model/qwen.yaml`."""
    left[0] -= 1
    own = contents(machine.read, posixpath.join(folder, f"{name}.yaml")) if left[0] >= 0 else None
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
            _merge(out, _file(machine, folder, one, left) or Table())
        elif isinstance(one, dict):
            for group, choice in one.items():
                words = str(group).removeprefix("override ").removeprefix("optional ").strip("/")
                where, _, package = words.partition("@")
                if not isinstance(choice, str) or where.startswith("hydra"):
                    continue
                inner = _file(machine, posixpath.join(folder, where), choice, left)
                for part in reversed((package or where).split("/")):
                    inner = Table({part: inner}) if inner is not None and part != "_global_" else inner
                _merge(out, inner or Table())
    if not merged:
        _merge(out, own)
    return out


def _merge(into: Table, other: Table) -> None:
    for key, value in other.items():
        if isinstance(value, Table) and isinstance(into.get(key), Table):
            _merge(into[key], value)
        else:
            into[key] = value
            if key in other.places:
                into.places[key] = other.places[key]


def _resolved(value: object, root: Table, machine: Machine, node: ast.AST) -> object:
    """A value in which references such as `${model.name}` are resolved."""
    if isinstance(value, Table):
        return Table({key: _resolved(one, root, machine, node) for key, one in value.items()}, value.places)
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
