"""Read a file of reward functions without executing it. Only specs with such a file import this."""

from __future__ import annotations

import ast
import warnings
from functools import cache


@cache
def _body(code: bytes) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code).body


def signature(code: bytes, name: str) -> tuple[list[str], set[str], bool] | None:
    """A function's parameters, its parameters without a default, and whether it has `**kwargs`; None if they cannot be
    read.
    """
    found = [one for one in _body(code) if getattr(one, "name", None) == name] if code else []
    if len(found) != 1 or not isinstance(found[0], ast.FunctionDef | ast.AsyncFunctionDef) or found[0].decorator_list:
        return None
    given = found[0].args
    named = [one.arg for one in given.args]
    needs = {*named[: len(named) - len(given.defaults)]} | {one.arg for one in given.posonlyargs}
    needs |= {one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None}
    return [*named, *(one.arg for one in given.kwonlyargs)], needs, given.kwarg is not None


def may_log(code: bytes) -> bool:
    """Whether a function of the file may log metrics: it uses trl's name `log_metric`, or passes on its `**kwargs`."""
    calls = (node for statement in _body(code) for node in ast.walk(statement) if isinstance(node, ast.Call))
    return b"log_metric" in code or any(word.arg is None for call in calls for word in call.keywords)
