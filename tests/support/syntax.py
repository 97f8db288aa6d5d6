"""The syntax trees of Python files. Tests that read the source share them, because parsing is slow."""

from __future__ import annotations

import ast
from functools import cache


@cache
def nodes(path: str) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree. All tests get the same nodes, so no test may change them."""
    with open(path, encoding="utf-8") as handle:
        return tuple(ast.walk(ast.parse(handle.read())))


def dotted(node: ast.expr) -> str:
    """The name by which a call calls a function, such as "sys.stdout.write". "" if the function is not called by a
    dotted name.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
