"""Read the files of reward functions, tools and environments without executing them."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import cache


@cache
def _body(code: bytes) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code).body


def _named(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """Find a function, a class or a method (`Maze.step`) in the statements of a file. None if it is missing, defined
    twice or decorated.
    """
    name, _, inner = name.partition(".")
    found = [one for one in body if getattr(one, "name", None) == name]
    if len(found) != 1 or getattr(found[0], "decorator_list", False):
        return None
    return _named(found[0].body, inner) if inner and isinstance(found[0], ast.ClassDef) else found[0]


def _function(code: bytes, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    found = _named(_body(code), name) if code else None
    return found if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else None


def signature(code: bytes, name: str) -> tuple[list[str], set[str], bool] | None:
    """Return a triple: the names of a function's parameters, the names of those parameters that have no default, and
    whether the function has `**kwargs`. None if the file defines no function of this name, for example only a class.
    """
    found = _function(code, name)
    if found is None:
        return None
    given = found.args
    named = [one.arg for one in given.args]
    needs = {*named[: len(named) - len(given.defaults)]} | {one.arg for one in given.posonlyargs}
    needs |= {one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None}
    return [*named, *(one.arg for one in given.kwonlyargs)], needs, given.kwarg is not None


def optional(code: bytes, name: str) -> set[str]:
    """The names of a function's parameters whose default is None or an empty text or list."""
    found = _function(code, name)
    if found is None:
        return set()
    given = found.args
    pairs = [*zip(given.args[len(given.args) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default]
    return {one.arg for one, default in pairs if ast.unparse(default) in ("None", "''", "[]", "()")}


def may_log(code: bytes) -> bool:
    """Whether a reward function of the file may log metrics by `log_metric`, a function that trl passes to rewards.
    True if the file contains this name, or if a call in the file passes on `**kwargs`, which may contain `log_metric`.
    """
    calls = (node for statement in _body(code) for node in ast.walk(statement) if isinstance(node, ast.Call))
    return b"log_metric" in code or any(word.arg is None for call in calls for word in call.keywords)


def methods(code: bytes, name: str) -> list[str] | None:
    """The names of a class's methods. None if they are unknown, because the class has a base class or the file cannot
    be read.
    """
    found = _named(_body(code), name) if code else None
    if not isinstance(found, ast.ClassDef) or found.bases or found.keywords:
        return None
    return [one.name for one in found.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The syntax nodes of a function, without the nodes of functions that are defined inside it."""
    for one in ast.iter_child_nodes(function):
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield one
            yield from _own(one)


def undescribed(code: bytes, name: str) -> str | None:
    """The reason why the model cannot use a function as a tool: it is a generator, or `get_json_schema` of transformers
    cannot describe it, because a type hint or a part of the docstring is missing. None if there is no such reason, or
    if the function cannot be read. Functions whose name begins with an underscore are not tools.
    """
    found = _function(code, name)
    if found is None or name.rpartition(".")[2].startswith("_"):
        return None
    if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in _own(found)):
        return "yields, and its result is a generator instead of a text"
    given = found.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    if "." in name:
        arguments = arguments[1:]
    text = ast.get_docstring(found)
    if text is None:
        return "has no docstring"
    untyped = next((one.arg for one in arguments if one.annotation is None), None)
    if untyped is not None:
        return f"has no type for `{untyped[:40]}`"
    section = text.partition("Args:")[2]
    lacks = next((one.arg for one in arguments if not re.search(rf"^\s*{one.arg}\b.*:", section, re.MULTILINE)), None)
    return None if lacks is None else f"has no line `{lacks[:40]}: ...` below `Args:` in its docstring"
