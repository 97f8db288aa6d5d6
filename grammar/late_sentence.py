"""Read a sentence that stands below a clause, that begins with another verb, or that lacks its model or its data, so
that the rest of the file is checked in the same round.

Imported only for a file with such an error: the parser reads the first two as a clause, and the error says what to
write.
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
"""A sentence whose model or data may be missing."""


def late_sentence(
    source: Source, text: str, errors: Sequence[Diagnostic]
) -> tuple[Train | None, tuple[Diagnostic, ...]]:
    """Return a pair: the sentence that the first error of this kind names, with the spans of the original text, and
    what is wrong in it. The sentence is None if it is not complete.
    """
    for error in errors:
        if error.primary is None or error.related:
            continue
        written = error.primary.span
        start, end = line_bounds(text, written.start, written.start)
        line = spaces(text[:start]) + text[start:end]
        if error.code == codes.INCOMPLETE_SENTENCE.code and error.edits:
            # another verb, or none: `train` is written over it, and over the spaces before it
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
    """Return a pair: the sentence without a model or without data in a text, and what is wrong in its options. The name
    of a missing part is empty. The sentence is None if the line has another error.
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
