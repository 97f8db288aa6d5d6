"""Convert the parse tree (`lalr.Node`) to the syntax tree (`tree.File`). The functions are recursive, but they cannot
exceed Python's recursion limit, because `scan` limits how deep brackets are nested.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable

from xpc.grammar import codes
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.lalr import Node
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import (
    Block,
    Budget,
    Call,
    Clause,
    Comment,
    Count,
    File,
    List,
    Name,
    Number,
    Ref,
    Setting,
    String,
    Train,
    Value,
)

LONGEST_NUMBER = 64
_NUMBER = re.compile(r"([+-]?)([0-9]+(?:_[0-9]+)*(\.[0-9]+(?:_[0-9]+)*)?([eE][+-]?[0-9]+)?)([A-Za-z]+|%)?")
_COUNT = re.compile(r"([0-9_]+)x(.*)", re.DOTALL)
_REF = re.compile(r"([^:\[@]+)(?::([^\[@]+))?(?:\[([^:\]]+)(?::([^\]]+))?\])?(?:@(.+))?")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


class Lifter:
    """Builds the syntax tree of one source text, and collects errors inside of tokens, such as malformed numbers."""

    def __init__(self, source: Source, broken: Iterable[int] = (), dropped: Iterable[tuple[int, int]] = ()) -> None:
        self.source, self._end = source, len(source.text)
        self.diagnostics: list[Diagnostic] = []
        self._broken = sorted(broken)
        self._dropped = tuple(dropped)

    def file(self, tree: Node | None, comments: tuple[Comment, ...]) -> File:
        """The syntax tree of the file. If nothing could be parsed, the tree is empty."""
        edition = extends = train = None
        statements: list[Setting | Clause] = []
        for node in tree.parts if tree is not None else ():
            if node.kind == "edition":
                edition = self._number(node.parts[0])
            elif node.kind == "extends":
                extends = None if self._is_broken(self._span(node)) else self._string(node.parts[0])
            elif node.kind == "train":
                train = None if self._is_broken(self._span(node)) else self._train(node)
            else:
                statements.extend(self._statement(node))
        span = Span(0, len(self.source.text))
        return File(span, self.source, edition, extends, train, tuple(statements), comments)

    def _error(self, code: codes.Code, span: Span, message: str, remedy: str, replacement: str | None = None) -> None:
        edits = () if replacement is None else (Edit(span, replacement),)
        label = Label(self.source, span)
        self.diagnostics.append(Diagnostic(code.code, code.slug, ERROR, message, label, help=remedy, edits=edits))

    def _span(self, node: Node) -> Span:
        # `scan` closes an unclosed block with a brace after the end of the text
        return Span(node.start, node.end) if node.end <= self._end else Span(min(node.start, self._end), self._end)

    def _is_broken(self, span: Span) -> bool:
        first = bisect_left(self._broken, span.start)
        return first < len(self._broken) and self._broken[first] < span.end

    def _statement(self, node: Node) -> tuple[Setting | Clause, ...]:
        span = self._span(node)
        if any(start < span.start < end for start, end in self._dropped):
            return ()
        block = next((child for child in node.parts if child.kind == "block"), None)
        own = span if block is None else Span(span.start, self._span(block).start)
        if self._is_broken(own):
            return ()
        return (self._setting(node) if node.kind == "setting" else self._clause(node, span, block),)

    def _clause(self, node: Node, span: Span, block: Node | None) -> Clause:
        head, *operands = (child for child in node.parts if child is not block)
        values = tuple(self._operand(child) for child in operands)
        lifted = None if block is None else self._block(block)
        # mypy does not know that xp.lark allows only three kinds of values as the head of a clause.
        return Clause(span, self._value(head), values, lifted)  # type: ignore[arg-type]

    def _block(self, node: Node) -> Block:
        return Block(self._span(node), tuple(each for child in node.parts for each in self._statement(child)))

    def _train(self, node: Node) -> Train:
        model, data, *rest = node.parts
        budget: Budget | None = None
        options: tuple[Setting | Value, ...] = ()
        for child in rest:
            if child.kind == "budget":
                amount, unit = child.parts
                budget = Budget(self._span(child), self._number(amount), self._name(unit))
            else:
                options = tuple(self._operand(each) for each in child.parts)
        return Train(self._span(node), self._value(model), self._value(data), budget, options)  # type: ignore[arg-type]

    def _operand(self, node: Node) -> Setting | Value:
        return self._setting(node) if node.kind == "setting" else self._value(node)

    def _setting(self, node: Node) -> Setting:
        name, value = node.parts
        return Setting(self._span(node), self._name(name), self._value(value))

    def _value(self, node: Node) -> Value:
        if node.kind == "NUMBER":
            return self._number(node)
        if node.kind == "STRING":
            return self._string(node)
        span = self._span(node)
        if node.kind == "ref":
            return self._ref(node.parts[0])
        if node.kind == "list":
            return List(span, tuple(self._value(child) for child in node.parts))
        if node.kind == "call":
            name, *args = node.parts
            return Call(span, self._name(name), tuple(self._operand(child) for child in args))
        n, what = node.parts
        return Count(span, self._number(n), self._ref(what.parts[0]))

    def _name(self, token: Node) -> Name:
        return Name(self._span(token), token.text)

    def _ref(self, token: Node) -> Ref:
        match = _REF.fullmatch(token.text)
        if match is None:
            raise AssertionError(f"not a reference: {token.text!r}")
        return Ref(self._span(token), *match.groups())

    def _string(self, token: Node) -> String:
        span, body = self._span(token), token.text[1:-1]
        if "\\" not in body:
            return String(span, body)
        pieces: list[str] = []
        at = 0
        while at < len(body):
            if body[at] != "\\":
                stop = body.find("\\", at)
                stop = len(body) if stop < 0 else stop
                pieces.append(body[at:stop])
                at = stop
                continue
            letter = body[at + 1]
            if letter not in _ESCAPES:
                location = Span(span.start + 1 + at, span.start + 3 + at)
                remedy = f"write `\\\\{letter}` for a backslash and `{letter}`"
                self._error(codes.BAD_ESCAPE, location, f"`\\{letter}` is not an escape", remedy, f"\\\\{letter}")
            pieces.append(_ESCAPES.get(letter, letter))
            at += 2
        return String(span, "".join(pieces))

    def _number(self, token: Node) -> Number:
        span, text = self._span(token), token.text
        if len(text) > LONGEST_NUMBER:
            message = f"a number of {len(text)} characters"
            self._error(codes.LONG_NUMBER, span, message, f"a number has at most {LONGEST_NUMBER} characters")
            return Number(span, text, 0)
        match = _NUMBER.fullmatch(text)
        count = _COUNT.fullmatch(text)
        if count and (match is None or match[5] == "x" or match[5].startswith("x")):
            self._count_spacing(span, text, count)
            return Number(span, text, 0)
        if match is None:
            self._error(codes.MALFORMED_NUMBER, span, f"`{text}` is not a number", *_number_remedy(text))
            return Number(span, text, 0)
        sign, digits, fraction, exponent, unit = match.groups()
        bare = (sign + digits).replace("_", "")
        value: int | float = float(bare) if fraction or exponent else int(bare)
        if math.isinf(value):
            self._error(codes.INFINITE_NUMBER, span, f"`{text}` is too large for a number", "write a finite number")
            value = 0
        elif not value and any(c in "123456789" for c in bare.lower().partition("e")[0]):
            self._error(codes.INFINITE_NUMBER, span, f"`{text}` is too small for a number", "write `0`, or more")
        return Number(span, text, value, unit)

    def _count_spacing(self, span: Span, text: str, count: re.Match[str]) -> None:
        """Report a count and a GPU with missing spaces between them: `8x v100-32gb` or `8xv100-32gb`."""
        n, rest = count[1], count[2]
        line = self.source.line(self.source.position(span.start)[0])
        after = line[self.source.position(span.end)[1] - 1 :].split()
        what = rest or (after[0] if after else "GPU")
        self._error(
            codes.COUNT_SPACING,
            span,
            f"`{text}` is not a number",
            f"write `{n} x {what}`",
            f"{n} x {rest}" if rest else f"{n} x",
        )


def _number_remedy(text: str) -> tuple[str, str | None]:
    if text.lstrip("+-").startswith(".") and _NUMBER.fullmatch(fixed := text.replace(".", "0.", 1)):
        return f"write `{fixed}`", fixed
    if text.endswith(".") and _NUMBER.fullmatch(text[:-1]):
        return f"write `{text[:-1]}`", text[:-1]
    if ".." in text:
        return "write each value in a list: a spec has no ranges", None
    if any(letter.isalpha() for letter in text):
        return "a name begins with a letter; put other text in double quotes", None
    return "numbers are written `528`, `1_000`, `0.95` or `1e-5`", None
