"""Find where the Python files of a repository declare or read a key of a configuration. The files are only parsed,
never executed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.grammar.record import record

LONG = 90
"""The largest number of characters of a key's default or help text in a comment."""


@record
class ScriptKey:
    """A key that a Python script declares or reads: file and line, its default as Python source, and its help text."""

    location: str
    default: str = ""
    help: str = ""
    declared: bool = False

    @property
    def sentence(self) -> str:
        """A sentence about the key, such as "train.py:31 declares it, default 0.5"."""
        out = f"{self.location} {'declares' if self.declared else 'reads'} it"
        out += f", default {self.default}" if self.default else ""
        return f"{out}: {self.help}" if self.help else out


def find(draft: Draft, keys: Iterable[str], overrides: Overrides) -> dict[str, ScriptKey]:
    """Find which of the keys the Python files near the imported file declare or read, and where."""
    wanted = {key.rpartition(".")[2]: key for key in keys}
    found: dict[str, ScriptKey] = {}
    if wanted:
        for name, text in overrides.scripts():
            for key, one in script_keys(text, name):
                if key in wanted and (key not in found or (one.declared and not found[key].declared)):
                    found[key] = one
    return {wanted[key]: one for key, one in found.items()}


def script_keys(text: str, file: str) -> Iterator[tuple[str, ScriptKey]]:
    """The keys that a script declares or reads: fields of dataclasses, options of argparse, and `config["key"]`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from _fields(node, file)
        elif isinstance(node, ast.Call):
            yield from _option(node, file)
        elif isinstance(node, ast.Subscript):
            key = _text(node.slice)
            if key:
                yield key, ScriptKey(f"{file}:{node.lineno}")


def _fields(node: ast.ClassDef, file: str) -> Iterator[tuple[str, ScriptKey]]:
    for one in node.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        location, value = f"{file}:{one.lineno}", one.value
        if isinstance(value, ast.Call):
            words = {word.arg: word.value for word in value.keywords}
            metadata = words.get("metadata")
            about = words.get("help")
            if isinstance(metadata, ast.Dict):
                about = next(
                    (inner for key, inner in zip(metadata.keys, metadata.values) if _text(key) == "help"), None
                )
            yield one.target.id, ScriptKey(location, _shown(words.get("default")), _text(about), True)
        else:
            yield one.target.id, ScriptKey(location, _shown(value), "", True)


def _option(node: ast.Call, file: str) -> Iterator[tuple[str, ScriptKey]]:
    """Yield the keys of `parser.add_argument("--key", default=..., help=...)`, `DEFINE_string("key", default, help)`
    and `get("key")`.
    """
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    words = {word.arg: word.value for word in node.keywords}
    location = f"{file}:{node.lineno}"
    if name == "add_argument":
        for one in node.args:
            if _text(one).startswith("--"):
                key = _text(one).lstrip("-").replace("-", "_")
                yield key, ScriptKey(location, _shown(words.get("default")), _text(words.get("help")), True)
    elif name.startswith("DEFINE_") and len(node.args) > 2:
        yield _text(node.args[0]), ScriptKey(location, _shown(node.args[1]), _text(node.args[2]), True)
    elif name == "get" and node.args and _text(node.args[0]):
        yield _text(node.args[0]), ScriptKey(location, _shown(node.args[1] if len(node.args) > 1 else None))


def _text(node: ast.AST | None) -> str:
    """The value of a string constant, on one line; "" for any other node."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return ""
    return " ".join(node.value.split())[:LONG]


def _shown(node: ast.AST | None) -> str:
    """The Python source of a default value; "" if there is no default, or if it is too long for a comment."""
    if node is None:
        return ""
    try:
        written = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return ""
    return written if len(written) <= LONG else ""
