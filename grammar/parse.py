"""Parse a text to a syntax tree, and find all its syntax errors at once."""

from __future__ import annotations

from xpc.grammar import codes
from xpc.grammar.checks import check
from xpc.grammar.diagnostic import ERROR, NOTE, Diagnostic, Label
from xpc.grammar.lalr import Node, UnexpectedToken
from xpc.grammar.lalr import parse as tree_of
from xpc.grammar.lift import Lifter
from xpc.grammar.read import describe_hidden, hidden_characters
from xpc.grammar.record import evolve
from xpc.grammar.scan import Scan, line_bounds, scan, spaces
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import File

MAX_SIZE = 262_144
MAX_ERRORS = 20
# After each error, the text is parsed again from the beginning. The total number of parsed characters is limited, so
# that no file takes more than a few seconds.
_MAX_WORK = MAX_SIZE


def parse(source: Source) -> tuple[File, tuple[Diagnostic, ...]]:
    """Return a pair: the syntax tree of a text, and its errors in the order of the text. Never raises an exception.

    A statement with a syntax error is left out of the tree, unless its repair is obvious (a missing comma, a word after
    a number). In a `train` line without model or data, the missing name is "". A text that has more than 262,144
    characters, or more than 64 levels of brackets, is not parsed. If there are more than 20 syntax errors, only 20 are
    reported, with a note.
    """
    if len(source.text) > MAX_SIZE:
        code = codes.TOO_LARGE
        message = f"{len(source.text):,} characters are too many for a specification (limit {MAX_SIZE:,})"
        remedy = 'put long texts in their own file: `file("template.jinja")`'
        label = Label(source, Span(0, 0))
        return _empty(source), (Diagnostic(code.code, code.slug, ERROR, message, label, help=remedy),)
    hidden = hidden_characters(source.text)
    seen = scan(source)
    text = _without(seen.text, (*hidden, *source.damage))
    tree, dropped, errors = _parse_all(source, seen, text)
    broken = (*seen.broken, *(span.start for span in (*hidden, *source.damage)))
    lifter = Lifter(source, broken, dropped)
    file, misplaced = check(lifter.file(tree, seen.comments))
    late = (codes.SECOND_SENTENCE.code, codes.INCOMPLETE_SENTENCE.code)
    if file.train is None and any(one.code in late for one in misplaced):
        # imported here, because few files have a `train` line below a clause or a first line with another verb
        from xpc.grammar.late_sentence import late_sentence

        train, wrong = late_sentence(source, text, misplaced)
        file, misplaced = evolve(file, train=train), (*misplaced, *wrong)
    if file.train is None and any(one.code == codes.INCOMPLETE_SENTENCE.code for one in errors):
        # imported here, because few files have a `train` line without a model or data
        from xpc.grammar.late_sentence import incomplete_sentence

        train, wrong = incomplete_sentence(source, _without(seen.text, (*hidden, *source.damage)))
        file, misplaced = evolve(file, train=train), (*misplaced, *wrong)
    found = [*describe_hidden(source, hidden, source.text), *seen.diagnostics, *errors, *lifter.diagnostics, *misplaced]
    found.sort(key=lambda each: each.primary.span.start if each.primary else 0)
    return file, _first(found)


def _empty(source: Source) -> File:
    return File(Span(0, len(source.text)), source)


def _first(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    if len(found) <= MAX_ERRORS:
        return tuple(found)
    code = codes.TOO_MANY_ERRORS
    note = Diagnostic(code.code, code.slug, NOTE, "more syntax errors follow", found[MAX_ERRORS].primary)
    return (*found[:MAX_ERRORS], note)


def _without(text: str, hidden: tuple[Span, ...]) -> str:
    """Replace the characters of `hidden` with spaces. They are already reported as errors, and must not cause further
    errors.
    """
    if not hidden:
        return text
    characters = list(text)
    for span in hidden:
        characters[span.start : span.end] = " " * (span.end - span.start)
    return "".join(characters)


def _parse_all(source: Source, seen: Scan, text: str) -> tuple[Node | None, list[tuple[int, int]], list[Diagnostic]]:
    """Return three things: the tree of all statements that can be parsed (None after too many errors), the spans of the
    blocks whose first line has an error, and all errors.
    """
    found: list[Diagnostic] = []
    dropped: list[tuple[int, int]] = []
    work = 0
    while True:
        try:
            return tree_of(text), dropped, found
        except UnexpectedToken as error:
            # imported here, because most specs have no syntax error
            from xpc.grammar.messages import explain

            failure = explain(source, text, error)
            found.append(failure.diagnostic)
            work += failure.offset
            start, end = _region(text, seen, failure.offset)
            if len(found) > MAX_ERRORS or work > _MAX_WORK or not text[start:end].strip():
                return None, dropped, found
            if failure.repair is not None:
                at = failure.repair.span
                text = text[: at.start] + failure.repair.text + text[at.end :]
                continue
            text = _blank(text, seen, start, end, dropped)


def _region(text: str, seen: Scan, offset: int) -> tuple[int, int]:
    """Return a pair: the offsets at which the lines of the statement at `offset` begin and end. A statement has several
    lines if a bracket in it ends on a later line.
    """
    start, end = line_bounds(text, offset, offset)
    for opened, closed in sorted(seen.pairs):
        if text[opened] in "[(" and opened < end and closed >= start:
            start = min(start, line_bounds(text, opened, opened)[0])
            end = max(end, line_bounds(text, closed, closed)[1])
    return start, end


def _blank(text: str, seen: Scan, start: int, end: int, dropped: list[tuple[int, int]]) -> str:
    """Replace the lines of a statement by spaces, but keep the braces of the text balanced: a `}` that closes an
    earlier block stays, and a `{` is replaced together with its `}`. If a block loses its braces, the parser still
    reads its contents, so that errors inside of it are reported. The block is added to `dropped`, and is later left out
    of the tree.
    """
    characters = list(text)
    characters[start:end] = spaces(text[start:end])
    for opened, closed in seen.pairs:
        if text[opened] != "{":
            continue
        if opened < start <= closed < end and text[closed] == "}":
            characters[closed] = "}"
        elif start <= opened < end <= closed:
            characters[closed] = " "
            dropped.append((opened, closed))
    return "".join(characters)
