"""Move settings to the place where they are legal: `batch { gbs = 64, bf16 }` becomes `batch { gbs = 64 }`, and `bf16`
on a line of its own; `num_train_epochs = 3` becomes `for 3 epochs` in the first line. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language.expand import expand
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.language.schema import BY_PATH, CLAUSES
from xpc.compiler.suggest.lines.rewriting import COMMENT
from xpc.grammar.diagnostic import Diagnostic, Edit, applied
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Call, Clause, Ref, Setting, Value

OUTSIDE = re.compile(
    r"(?:it belongs to `\w+`: )?write `(?P<form>(?!\S*\.\.\.)[^`]+)`(?: on a line of its own,)? outside of `\w+`"
)
"""Matches a help that moves a setting to one stated place. It does not match a help that offers several forms."""
LENGTH = re.compile(
    r"write `(?P<form>for \d+ (?:epochs?|steps?))`(?: after `train MODEL on DATA`| in the first line, after the data)?"
)
"""Matches a help that writes the length of the run into the first line."""
AFTER = re.compile(r"[ \t,]*(#[^\n]*)?$", re.MULTILINE)
"""Matches the rest of a line after its last item: nothing, or a comment."""
MOST = 20
"""At most this many findings get an edit. The limit is needed because each edit is tried."""

Node = Setting | Clause | Value


def move_length(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Add edits to the first finding about a run's length on a line of its own, such as `epochs = 3`."""
    for one in problems:
        advice = None if one.edits else LENGTH.fullmatch(one.help or "")
        if advice is None or one.primary is None:
            continue
        train = parse(one.primary.source)[0].train
        if train is None or train.budget is not None:
            break
        text, at = one.primary.source.text, one.primary.span
        start, end = line_bounds(text, at.start, at.start)
        alone = re.fullmatch(r"[ \t]*(?:[^={}()]+[=:])?[^={}(),]+,?[ \t]*(?:#.*)?", text[start:end])
        place = None if alone else _place(one.primary.source, at)
        if start <= train.span.end or (alone is None and place is None):
            continue
        comment = COMMENT.search(text, start, end)
        gone = [Edit(Span(start - 1, end), "" if comment is None else f"\n{comment[0]}")]
        if place is not None and (len(place[1].items) > 1 or not _is_bare(*place[:2])):
            gone = _without(text, place[1], [place[2]])
        after = train.data.span.end
        edits = (Edit(Span(after, after), f" {advice['form']}"), *gone)
        return [evolve(one, edits=edits) if each is one else each for each in problems]
    return list(problems)


@record
class Body:
    """The items of a block, of a call, or of a clause on one line. `whole` is the place of the complete block, or of
    the call's brackets: if all items move, this text is removed. For a clause on one line, `whole` is None. `before` is
    the end of the text before the first item.
    """

    items: tuple[Node, ...]
    whole: Span | None
    before: int


@record
class Move:
    """A move of an item to another place. `body` contains the item, and `index` is the item's index in it. `statement`
    is the statement around the body, and `header` is true if this statement is an option of the first line. `form` is
    the text to write at the new place. `number` is the index of the finding.
    """

    body: Body
    index: int
    statement: Node
    header: bool
    form: str
    number: int


def move_out(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Add edits to the findings about settings that stand in the block of another clause."""
    out = list(problems)
    groups: dict[tuple[str, int], list[Move]] = {}
    source, before = None, 0
    for number, one in enumerate(out):
        move = _move(one, number) if len(groups) < MOST else None
        if move is not None and one.primary is not None:
            groups.setdefault((one.primary.source.name, move.body.items[0].span.start), []).append(move)
    for moves in groups.values():
        label = out[moves[0].number].primary
        assert label is not None
        edits = _edits(label.source.text, moves)
        if source is not label.source:
            source, before = label.source, _errors(label.source)
        after = Source(source.name, applied(source.text, {edit for one in edits for edit in one}))
        if _errors(after) <= before - len(moves):
            for move, made in zip(moves, edits, strict=True):
                out[move.number] = evolve(out[move.number], edits=made)
    return out


def _edits(text: str, moves: Sequence[Move]) -> list[tuple[Edit, ...]]:
    """The edits of each move; all `moves` are of items of the same body. An editor may apply the edits of one finding,
    or of all findings: both give a legal spec. If all items of the body move, each finding gets the same edits, which
    move all items.
    """
    first = moves[0]
    body, statement = first.body, first.statement
    end = statement.span.end if first.header else line_bounds(text, statement.span.end, statement.span.end)[1]
    sign = " " if first.header else "\n"
    if len(moves) < len(body.items) or body.whole is None:
        gone = _without(text, body, [one.index for one in moves])
        return [(each, Edit(Span(end, end), sign + one.form)) for each, one in zip(gone, moves, strict=True)]
    forms = sign.join(one.form for one in moves)
    if _is_bare(statement, body):
        return [(Edit(Span(statement.span.start, body.whole.end), forms),)] * len(moves)
    return [(Edit(body.whole, ""), Edit(Span(end, end), sign + forms))] * len(moves)


def _move(found: Diagnostic, number: int) -> Move | None:
    """The move that a finding suggests. None if the finding suggests no move, or several places."""
    advice = None if found.edits or found.code not in ("XP101", "XP102") else OUTSIDE.fullmatch(found.help or "")
    at = found.primary
    place = None if advice is None or at is None else _place(at.source, at.span)
    if advice is None or place is None or at is None:
        return None
    statement, body, index, header = place
    form = _form(body.items[index], advice["form"], at.source.slice(body.items[index].span))
    comment = AFTER.match(at.source.text, body.items[index].span.end) if body.whole is not None else None
    form = f"{form}  {comment[1]}" if form is not None and comment is not None and comment[1] else form
    return None if form is None else Move(body, index, statement, header, form, number)


def _form(item: Node, form: str, text: str) -> str | None:
    """The text to write for an item at its new place: the form that the help suggests, or a complete clause, unchanged.
    None if the item has no value, so that the value in the form is only an example.
    """
    if isinstance(item, Clause | Call) and text.startswith(form) and not text[len(form) :][:1].isalnum():
        return re.sub(r"\n[ \t]{0,2}", "\n", text)
    bare = isinstance(item, Ref) or (isinstance(item, Clause) and not item.body)
    return form if isinstance(item, Setting) or (bare and "=" not in form.replace("=true", "")) else None


def _is_bare(statement: Node, body: Body) -> bool:
    """Whether a statement without the items of its block would set nothing, so that it can be removed: true for
    `memory { zero3 }` and `memory(zero3)`, but not for `lora { zero3 }`, because `lora` alone is a setting.
    """
    head = statement.head if isinstance(statement, Clause) and not statement.operands else statement
    name = head.name if isinstance(head, Ref) else head.name.text if isinstance(head, Call) else ""
    row = BY_PATH.get(name)
    return name in CLAUSES and body.before == head.span.start + len(name) and (row is None or row.kind is not FLAG)


def _errors(source: Source) -> int:
    """The number of errors about syntax and names."""
    file, found = parse(source)
    return len(found) + len(expand(file).problems)


def _place(source: Source, span: Span) -> tuple[Node, Body, int, bool] | None:
    """Find the item that begins at a position. Returns four things: its statement, the body that contains the item, the
    item's index in this body, and whether the statement is an option of the first line. None if no item inside a
    statement begins there.
    """
    file = parse(source)[0]
    options = () if file.train is None else file.train.options
    for statement in (*options, *file.statements):
        if statement.span.start < span.start < statement.span.end:
            found = _inside(statement, span.start)
            return None if found is None else (statement, *found, statement in options)
    return None


def _inside(node: Node, at: int) -> tuple[Body, int] | None:
    for body in _bodies(node):
        for index, item in enumerate(body.items):
            if item.span.start == at:
                return body, index
            if item.span.start < at < item.span.end:
                return _inside(item, at)
    return None


def _bodies(node: Node) -> list[Body]:
    """All `Body` objects in an item: the arguments of a call; the line and the block of a clause."""
    if isinstance(node, Setting):
        return _bodies(node.value)
    if isinstance(node, Call):
        end = node.name.span.end
        return [Body(node.args, Span(end, node.span.end), end)] if node.args else []
    if not isinstance(node, Clause):
        return []
    line = [Body(node.operands, None, node.head.span.end)] if node.operands else []
    last = node.operands[-1].span.end if node.operands else node.head.span.end
    block = node.block
    braces = [Body(block.statements, Span(last, block.span.end), last)] if block and block.statements else []
    return [*_bodies(node.head), *line, *(one for each in node.operands for one in _bodies(each)), *braces]


def _without(text: str, body: Body, moved: Sequence[int]) -> list[Edit]:
    """Make edits that remove some items of a body, one edit for each item."""
    items = body.items
    if len(items) == 1 and body.whole is not None:
        return [Edit(body.whole, "")]
    kept = next((index for index in range(len(items)) if index not in moved), len(items))
    out: list[Edit] = []
    for index in moved:
        item = items[index].span
        start, end = line_bounds(text, item.start, item.end)
        if body.whole is not None and not text[start : item.start].strip() and AFTER.match(text, item.end):
            out.append(Edit(Span(start - 1, end), ""))
        elif body.whole is not None and index < kept:
            out.append(Edit(Span(item.start, items[index + 1].span.start), ""))
        else:
            out.append(Edit(Span(items[index - 1].span.end if index else body.before, item.end), ""))
    return out
