"""Format a syntax tree as text in its canonical form. The text means the same as the original:
`parse(format_file(file))` and `file` are equal. Formatting it again does not change it.

Columns are not aligned. If a clause has a block, or at least two settings on its line, all its settings are written in
a block. Nested blocks, calls and the header keep their form. A clause with a block gets blank lines around it, and the
author's own blank lines stay.
"""

from __future__ import annotations

from bisect import bisect_left

from xpc.grammar.source import Span
from xpc.grammar.tree import (
    Block,
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
    quoted,
)

WIDTH = 100
_INDENT = "  "

Statement = Setting | Clause


def format_file(file: File) -> str:
    """The canonical text of a file: either empty, or ending with one newline. A comment stays with its statement."""
    return _Formatter(file).run()


class _Formatter:
    def __init__(self, file: File) -> None:
        self.file = file
        self.text = file.source.text
        self.comments = file.comments
        self.starts = [comment.span.start for comment in file.comments]
        self.inline: dict[int, str | None] = {}

    # Places ---------------------------------------------------------------------------------------------------------

    def _comments(self, start: int, end: int) -> tuple[Comment, ...]:
        return self.comments[bisect_left(self.starts, start) : bisect_left(self.starts, end)]

    def _trailing(self, start: int, end: int) -> Comment | None:
        """The comment on the line of the offset `start`, if only spaces are between `start` and the comment; otherwise
        None.
        """
        for comment in self._comments(start, end)[:1]:
            if "\n" not in self.text[start : comment.span.start]:
                return comment
        return None

    def _blank_before(self, previous: int, start: int) -> bool:
        """Whether the source has an empty line between two offsets."""
        return any(not line.strip() for line in self.text[previous:start].split("\n")[1:-1])

    # Statements -----------------------------------------------------------------------------------------------------

    def run(self) -> str:
        file = self.file
        lines: list[str] = []
        at = 0
        parts: list[tuple[Span, str | None, Statement | None]] = []
        if file.edition is not None:
            parts.append((file.edition.span, f"xpc {file.edition.text}", None))
        if file.extends is not None:
            parts.append((file.extends.span, f"extends {quoted(file.extends.value)}", None))
        if file.train is not None:
            parts.append((file.train.span, self._train(file.train), None))
        parts += [(statement.span, None, statement) for statement in file.statements]
        for number, (span, text, statement) in enumerate(parts):
            following = parts[number + 1][0].start if number + 1 < len(parts) else len(self.text)
            if number:
                before = parts[number - 1][2]
                apart = before is None or statement is None or _has_block(before) or _has_block(statement)
            else:
                apart = False
            at = self._item(lines, span, at, following, "", apart, text if statement is None else None, statement)
        self._rest(lines, at, len(self.text), "")
        return "\n".join(lines) + "\n" if lines else ""

    def _item(
        self,
        lines: list[str],
        span: Span,
        at: int,
        following: int,
        indent: str,
        apart: bool,
        text: str | None,
        statement: Statement | None,
    ) -> int:
        """Append one statement with its comments. Returns the offset in the source up to which everything has been
        appended.
        """
        lead = self._comments(at, span.start)
        for comment in lead:
            if lines and (apart or self._blank_before(at, comment.span.start)):
                _gap(lines)
            apart = False
            lines.append(indent + comment.text.rstrip())
            at = comment.span.end
        if lines and (apart or self._blank_before(at, span.start)):
            _gap(lines)
        if statement is not None:
            return self._statement(lines, statement, following, indent)
        lines.append(f"{indent}{text}")
        return self._followed(lines, span.end, following)

    def _followed(self, lines: list[str], at: int, following: int) -> int:
        comment = self._trailing(at, following)
        if comment is None:
            return at
        lines[-1] += "  " + comment.text.rstrip()
        return comment.span.end

    def _rest(self, lines: list[str], at: int, end: int, indent: str) -> None:
        for comment in self._comments(at, end):
            if lines and self._blank_before(at, comment.span.start):
                _gap(lines)
            lines.append(indent + comment.text.rstrip())
            at = comment.span.end

    def _statement(self, lines: list[str], statement: Statement, following: int, indent: str) -> int:
        if isinstance(statement, Setting):
            lines.append(
                f"{indent}{statement.name.text} = {self._value(statement.value, indent, len(statement.name.text) + 3)}"
            )
            return self._followed(lines, statement.span.end, following)
        head, moved = _split(statement)
        block = statement.block
        line = indent
        for operand in (statement.head, *head):
            line += " " * (line != indent) + self._operand(
                operand, indent, len(line.rpartition("\n")[2]) - len(indent) + 1
            )
        if not moved and block is None:
            lines.append(line)
            return self._followed(lines, statement.span.end, following)
        last = statement.operands[-1] if statement.operands else statement.head
        inside = statement.span.end if block is None else min(block.span.start + 1, len(self.text))
        done = statement.span.end
        if not moved and block is not None and not block.statements and not self._comments(inside, done):
            lines.append(f"{line} {{ }}")
            return self._followed(lines, done, following)
        lines.append(line + " {")
        if block is None:
            # the settings of the clause move into a block, so a comment at the end of the line stands after the `{`
            done = self._followed(lines, last.span.end, following)
        else:
            first = block.statements[0].span.start if block.statements else done
            inside = self._followed(lines, inside, first)
        for setting in moved:
            self._statement(lines, setting, setting.span.end, indent + _INDENT)
        if block is not None:
            self._body(lines, block, inside, indent + _INDENT)
        lines.append(indent + "}")
        return done if block is None else self._followed(lines, done, following)

    def _body(self, lines: list[str], block: Block, at: int, indent: str) -> None:
        inner: list[str] = []
        for number, statement in enumerate(block.statements):
            more = block.statements[number + 1 : number + 2]
            following = more[0].span.start if more else block.span.end
            at = self._item(inner, statement.span, at, following, indent, False, None, statement)
        self._rest(inner, at, block.span.end, indent)
        lines += inner

    # Phrases --------------------------------------------------------------------------------------------------------

    def _train(self, train: Train) -> str:
        line = f"train {_plain(train.model)} on {_plain(train.data)}"
        if train.budget is not None:
            line += f" for {train.budget.amount.text} {train.budget.unit.text}"
        if train.options:
            line += " with"
            for option in train.options:
                line += " " + self._operand(option, "", len(line.rpartition("\n")[2]) + 1)
        return line

    def _operand(self, operand: Setting | Value, indent: str, column: int) -> str:
        if isinstance(operand, Setting):
            name = operand.name.text
            return f"{name}={self._value(operand.value, indent, column + len(name) + 1)}"
        return self._value(operand, indent, column)

    def _value(self, value: Value, indent: str, column: int) -> str:
        """The text of a value. A list that does not fit in the line is written over several lines. `column` is the
        number of characters between the indent of the line and the value.
        """
        if not isinstance(value, (List, Call)):
            return _plain(value)
        items = value.items if isinstance(value, List) else value.args
        prefix, close = ("[", "]") if isinstance(value, List) else (value.name.text + "(", ")")
        if not self._comments(value.span.start, value.span.end):
            inline = self._inline(value)
            if inline is not None and (not items or len(indent) + column + len(inline) <= WIDTH):
                return inline
        lines = [prefix]
        inner = indent + _INDENT
        at = self._followed(lines, value.span.start + len(prefix), items[0].span.start if items else value.span.end)
        for number, item in enumerate(items):
            following = items[number + 1].span.start if number + 1 < len(items) else value.span.end
            for comment in self._comments(at, item.span.start):
                lines.append(inner + comment.text.rstrip())
            lines.append(inner + self._operand(item, inner, 0) + ",")
            at = self._followed(lines, item.span.end, following)
        lines += [inner + comment.text.rstrip() for comment in self._comments(at, value.span.end)]
        lines.append(indent + close)
        return "\n".join(lines)

    def _inline(self, operand: Setting | Value) -> str | None:
        """The text of a value on one line. None for a list or a call that does not fit on one line. The result is
        cached.
        """
        if isinstance(operand, Setting):
            text = self._inline(operand.value)
            return None if text is None else f"{operand.name.text}={text}"
        if not isinstance(operand, (List, Call)):
            return _plain(operand)
        if id(operand) not in self.inline:
            items = operand.items if isinstance(operand, List) else operand.args
            prefix, close = ("[", "]") if isinstance(operand, List) else (operand.name.text + "(", ")")
            texts = [self._inline(item) for item in items]
            joined = None if None in texts else prefix + ", ".join(text or "" for text in texts) + close
            self.inline[id(operand)] = joined if joined is None or len(joined) <= WIDTH or not items else None
        return self.inline[id(operand)]


def _gap(lines: list[str]) -> None:
    if lines[-1]:
        lines.append("")


def _split(clause: Clause) -> tuple[tuple[Setting | Value, ...], tuple[Setting, ...]]:
    """Divide the items of a clause into two groups, and return both: the items that stay on the line, and the settings
    that move into the block.
    """
    settings = tuple(operand for operand in clause.operands if isinstance(operand, Setting))
    if clause.block is None and len(settings) < 2:
        return clause.operands, ()
    return tuple(operand for operand in clause.operands if not isinstance(operand, Setting)), settings


def _has_block(statement: Statement) -> bool:
    return isinstance(statement, Clause) and (statement.block is not None or bool(_split(statement)[1]))


def _plain(value: Name | Number | String | Ref | Count | Value) -> str:
    if isinstance(value, (Name, Number)):
        return value.text
    if isinstance(value, String):
        return quoted(value.value)
    if isinstance(value, Count):
        return f"{value.n.text} x {_plain(value.what)}"
    if isinstance(value, Ref):
        return _ref(value)
    raise TypeError(f"{type(value).__name__} cannot be written as one value")


def _ref(ref: Ref) -> str:
    config = "" if ref.config is None else f":{ref.config}"
    part = "" if ref.slice is None else f":{ref.slice}"
    split = "" if ref.split is None else f"[{ref.split}{part}]"
    return ref.name + config + split + ("" if ref.revision is None else f"@{ref.revision}")
