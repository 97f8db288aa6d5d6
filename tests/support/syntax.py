"""The syntax trees of Python files. Tests that read the source share them, because parsing is slow."""

from __future__ import annotations

import ast
from functools import cache


@cache
def nodes(path: str) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree. Tests must not change them."""
    with open(path, encoding="utf-8") as handle:
        return tuple(ast.walk(ast.parse(handle.read())))


def dotted(node: ast.expr) -> str:
    """The name of a function as a call writes it, such as "sys.stdout.write"; "" if it is not a dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
