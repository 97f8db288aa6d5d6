"""Read a faulty `train` line, so that the rest of the file can be checked in the same round.

There are three kinds of faults: the line stands below a clause, it begins with another verb (`finetune M on D`), or its
model or data is missing. With one of the first two faults, the parser reads the line as a clause. `checks.py` or the
parser reports the fault itself. This module is imported only for a file with such an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.grammar import codes
from xpc.grammar.checks import check
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.lalr import UnexpectedToken
from xpc.grammar.lalr import parse as tree_of
from xpc.grammar.lift import Lifter
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds, spaces
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Ref, Train

PARTS = re.compile(
    r"""[ \t]*train(?![^\s"])(?P<model>[ \t]+(?!(?:on|for|with)\b)(?:"[^"\n]*"|[^\s"=,]+))?"""
    r"""(?:[ \t]+on\b)?(?P<data>[ \t]+(?!(?:for|with)\b)(?:"[^"\n]*"|[^\s"=,]+))?"""
    r"""(?P<rest>[ \t]+(?:for|with)\b[^\n]*)?[ \t]*(?:\#[^\n]*)?"""
)
"""A pattern for a `train` sentence in which the model or the data may be missing."""


def late_sentence(
    source: Source, text: str, errors: Sequence[Diagnostic]
) -> tuple[Train | None, tuple[Diagnostic, ...]]:
    """Read a `train` line that one of `errors` reports, because it is below a clause or begins with another verb.

    Return a pair: the parsed line, whose spans refer to the original text, and the errors inside of it. The first item
    is None if the line cannot be parsed.
    """
    for error in errors:
        if error.primary is None or error.related:
            continue
        written = error.primary.span
        start, end = line_bounds(text, written.start, written.start)
        line = spaces(text[:start]) + text[start:end]
        if error.code == codes.INCOMPLETE_SENTENCE.code and error.edits:
            # the line begins with another verb or with none; `train` is written over the verb and the spaces before it
            after = written.end if error.edits[0].span == written else written.start
            if after < len("train "):
                return None, ()
            line = spaces(text[: after - len("train ")]) + "train " + text[after:end]
        elif error.code != codes.SECOND_SENTENCE.code:
            continue
        try:
            tree = tree_of(line + spaces(text[end:]))
        except UnexpectedToken:
            return None, ()
        file, found = check(Lifter(source).file(tree, ()))
        if file.train is None:
            return None, ()
        return evolve(file.train, span=Span(written.start, file.train.span.end)), found
    return None, ()


def incomplete_sentence(source: Source, text: str) -> tuple[Train | None, tuple[Diagnostic, ...]]:
    """Read a `train` line that lacks its model or its data, such as `train on D for 3 epochs`.

    Return a pair: the parsed line, in which the missing name is "", and the errors in the rest of the line. The first
    item is None if the line has another fault.
    """
    for start in (found.start() for found in re.finditer(r"^[ \t]*train\b", text, re.MULTILINE)):
        start, end = line_bounds(text, start, start)
        found = PARTS.fullmatch(text, start, end)
        if found is None:
            return None, ()
        at = Span(found.end("model") if found["model"] else end, end)
        read: dict[str, Train] = {}
        wrong: tuple[Diagnostic, ...] = ()
        for part, before in (("model", "train"), ("data", "train m on"), ("rest", "train m on d")):
            if found[part] is None:
                continue
            begin, stop = found.span(part)
            if begin < len(before):
                return None, ()
            after = " on d" if part == "model" else ""
            line = spaces(text[: begin - len(before)]) + before + text[begin:stop] + after + "\n"
            try:
                file, wrong = check(Lifter(source).file(tree_of(line), ()))
            except UnexpectedToken:
                return None, ()
            if file.train is None:
                return None, ()
            read[part] = file.train
        missing = Ref(Span(at.start, at.start), "")
        rest = read.get("rest")
        model, data = read.get("model"), read.get("data")
        return Train(
            Span(start, end),
            missing if model is None else model.model,
            missing if data is None else data.data,
            None if rest is None else rest.budget,
            () if rest is None else rest.options,
        ), wrong
    return None, ()
