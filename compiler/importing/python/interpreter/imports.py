"""Interpret `import` statements. A module next to the script is read; any other module is assumed to be a library."""

from __future__ import annotations

import ast
import posixpath

from xpc.compiler.importing.python.interpreter.branches import Journal
from xpc.compiler.importing.python.interpreter.functions import LIBRARIES
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.source import parts
from xpc.compiler.importing.python.interpreter.values import Class, Name
from xpc.compiler.importing.text.entries import Unreadable

MAX_MODULES = 40


def _module(machine: Machine, name: str, level: int = 0) -> dict[str, object] | None:
    """The variables of a module in the script's folder or in a folder above it; None if there is no such file. `level`
    is the number of dots at the beginning of a relative import.
    """
    parts_ = name.split(".") if name else []
    if not all(part.isidentifier() for part in parts_) or (not level and parts_[0] in LIBRARIES):
        return None
    folder = posixpath.dirname(machine.label.rpartition(" cell ")[0] or machine.label) if level else ""
    if level and machine.scopes[-1] is machine.main:
        folder = ""  # all paths are relative to the script's folder, so a relative import of the script begins there
    stem = posixpath.normpath(posixpath.join(folder, *[".."] * (level - 1), *parts_))
    if stem in machine.modules:
        return machine.modules[stem]
    if len(machine.modules) >= MAX_MODULES:
        return None
    for root in ("",) if level else ("", "src/"):
        for path in (f"{root}{stem}.py", f"{root}{stem}/__init__.py"):
            data = machine.read(posixpath.normpath(path))
            if data is None:
                continue
            try:
                found, _ = parts(data.decode("utf-8-sig"), posixpath.normpath(path))
            except (Unreadable, UnicodeDecodeError):
                return None
            scope: dict[str, object] = {"__name__": name}
            machine.modules[stem] = scope
            scopes, label, journal = machine.scopes, machine.label, machine.journal
            # The changes of a branch are undone after the branch. A module that it imports stays imported, so the
            # module's changes are recorded in a separate journal.
            machine.journal = Journal()
            machine.walk(found, scope)
            machine.scopes, machine.label, machine.journal = scopes, label, journal
            return scope
    return None


def import_module(machine: Machine, node: ast.Import) -> None:
    """Interpret `import a.b as c`."""
    for one in node.names:
        machine.packages.setdefault(one.name.partition(".")[0])
        name = one.asname or one.name.partition(".")[0]
        scope = _module(machine, one.name)
        value: object = Name(one.name if one.asname else name)
        if scope is not None and (one.asname or "." not in one.name):
            value = Class(one.name, [], machine.location(node), scope)
        machine.define(name, value)


def import_names(machine: Machine, node: ast.ImportFrom) -> None:
    """Interpret `from a import b`."""
    module = node.module or ""
    if not node.level:
        machine.packages.setdefault(module.partition(".")[0])
    scope = _module(machine, module, node.level) if module or node.level else None
    if scope is None and node.level == 0 and module.startswith("src."):
        scope = _module(machine, module.rpartition(".")[2])
    for one in node.names:
        if one.name == "*":
            for key, value in (scope or {}).items():
                if not key.startswith("_"):
                    machine.define(key, value)
            continue
        name = one.asname or one.name
        if scope is not None and one.name in scope:
            value = scope[one.name]
        else:
            path = f"{module}.{one.name}" if module else one.name
            inner = _module(machine, path, node.level)
            value = Name(path)
            if inner is not None:
                value = Class(one.name, [], machine.location(node), inner)
            elif scope is not None or node.level:
                value = machine.unknown(node, f"`{one.name}` is in a module that the import does not read")
        machine.define(name, value)
