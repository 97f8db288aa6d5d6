"""The syntax trees of Python files. Tests that read the source share them, because parsing is slow."""

from __future__ import annotations

import ast
from functools import cache

BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Names of attributes of syntax trees. Each attribute contains a list of statements."""


@cache
def nodes(path: str) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree. All tests get the same nodes, so no test may change them."""
    with open(path, encoding="utf-8") as handle:
        return tuple(ast.walk(ast.parse(handle.read())))


@cache
def imports(path: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import statement of a file, also those inside functions. Expressions are not searched, because they contain
    no imports.
    """
    with open(path, encoding="utf-8") as handle:
        waiting: list[ast.AST] = [ast.parse(handle.read())]
    found = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        waiting += [one for block in BLOCKS for one in getattr(node, block, ())]
    return tuple(found)


def dotted(node: ast.expr) -> str:
    """The name by which a call calls a function, such as "sys.stdout.write". "" if the function is not called by a
    dotted name.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
