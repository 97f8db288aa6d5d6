"""Mutation operators. Each operator finds pieces of source code that it can change, and yields a replacement for each
piece.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from attrs import frozen

NAME = re.compile(r"[a-z][a-z0-9_]*([.:/-][a-z0-9_]+)*")
"""Matches strings that look like names of settings, arguments or keys. Other strings, such as sentences, are not
mutated, because golden files compare them.
"""
OPERATOR = re.compile(r"(?<=[\s)])(not in|is not|[<>=!]=|//|\*\*|[-+*/%<>]|and|or|in|is)(?=[\s(])")
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
COUNTED: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*",
}  # fmt: skip


@frozen
class Mutation:
    """A change of a file: where the piece to replace begins and ends, in UTF-8 bytes of the file, and its
    replacement.
    """

    file: str
    line: int
    start: int
    end: int
    new: str
    kind: str

    def applied(self, source: bytes) -> bytes:
        """The file's bytes with this mutation."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class Finder:
    """Finds all mutations of a file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def all(self) -> list[Mutation]:
        """All mutations of the file in the order of the source. Docstrings, annotations, imports and names of types are
        not mutated.
        """
        tree = ast.parse(self.source)
        found = [one for node in self._walk(tree) for one in self._of(node)]
        return sorted(found, key=lambda one: (one.start, one.end, one.new))

    def _walk(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the syntax nodes that can be mutated: nodes that Python runs, except annotations, decorators and base
        classes.
        """
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not self._is_idle(child):
                    yield from self._walk(child)

    def _is_idle(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return True  # a docstring
        return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"

    def _of(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                yield self._between(left, right, COMPARED[type(op)], "comparison")
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield self._between(left, right, "or" if isinstance(op, ast.And) else "and", "and, or")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in COUNTED and not self._is_text(left, right):
                yield self._between(left, right, COUNTED[type(op)], "arithmetic")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._instead(node, f"bool({self._text(operand)})", "not")
            case ast.If(test=test) | ast.IfExp(test=test):
                yield self._instead(test, f"not ({self._text(test)})", "condition")
            case ast.comprehension(ifs=[test, *_]):
                yield self._instead(test, "True", "filter")
            case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
                yield self._instead(value, "None", "return")
            case ast.Continue() | ast.Break():
                yield self._instead(node, "pass", "loop")
            case ast.Expr(value=ast.Call()):
                yield self._instead(node, "pass", "call left out")
            case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
                yield self._instead(node, "yield from ()", "yield left out")
            case ast.AugAssign():
                yield self._instead(node, "pass", "assignment left out")
            case ast.Tuple(elts=[first, second, *_], ctx=ast.Load()) if not isinstance(first, ast.Starred):
                yield self._cut(first, second)
            case ast.Constant(value=value):
                yield from self._constant(node, value)

    def _constant(self, node: ast.Constant, value: object) -> Iterator[Mutation]:
        if isinstance(value, bool):
            yield self._instead(node, str(not value), "boolean")
        elif isinstance(value, int):
            yield self._instead(node, str(value + 1), "number")
        elif isinstance(value, float):
            yield self._instead(node, repr(value * 1.5 + 1e-9), "number")
        elif isinstance(value, str) and NAME.fullmatch(value) and self._text(node)[:1] in "\"'":
            yield self._instead(node, f'"{value}_"', "name")

    def _is_text(self, *nodes: ast.AST) -> bool:
        return any(isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str))
                   for one in nodes)  # fmt: skip

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _made(self, start: int, end: int, new: str, kind: str) -> Mutation:
        line = self.source.count(b"\n", 0, start) + 1
        return Mutation(self.file, line, start, end, new, kind)

    def _instead(self, node: ast.AST, new: str, kind: str) -> Mutation:
        return self._made(*self._span(node), new, kind)

    def _between(self, left: ast.AST, right: ast.AST, new: str, kind: str) -> Mutation:
        """Replace the operator between two operands; parentheses around the operands stay."""
        start, end = self._span(left)[1], self._span(right)[0]
        words = self.source[start:end].decode()
        return self._made(start, end, OPERATOR.sub(new, words, count=1), kind)

    def _cut(self, first: ast.AST, second: ast.AST) -> Mutation:
        """Remove the first element of a tuple."""
        return self._made(self._span(first)[0], self._span(second)[0], "", "element left out")


def works(one: Mutation, source: bytes) -> bool:
    """Whether a file with this mutation is valid Python, and its syntax tree differs from the tree of the unchanged
    file.
    """
    try:
        return ast.dump(ast.parse(one.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False
