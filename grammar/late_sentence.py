"""Read a sentence that stands below a clause, or that begins with another verb, so that the rest of the file is checked
in the same round.

Imported only for a file with such an error: the parser reads such a line as a clause, and the error says what to write.
"""

from __future__ import annotations

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
from xpc.grammar.tree import Train


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
