"""Read a `train` sentence that stands below a clause, so that the rest of the file is checked in the same round.

Imported only for a file with this error: the parser reads such a line as a clause, and the error says where the
sentence belongs.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.grammar import codes
from xpc.grammar.checks import check
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.lalr import UnexpectedToken
from xpc.grammar.lalr import parse as tree_of
from xpc.grammar.lift import Lifter
from xpc.grammar.scan import line_bounds, spaces
from xpc.grammar.source import Source
from xpc.grammar.tree import Train


def late_sentence(
    source: Source, text: str, errors: Sequence[Diagnostic]
) -> tuple[Train | None, tuple[Diagnostic, ...]]:
    """Return a pair: the sentence that the first error of this kind names, with the spans of the original text, and
    what is wrong in it. The sentence is None if it stands in a block, or is not complete.
    """
    where = [error.primary for error in errors if error.code == codes.SECOND_SENTENCE.code and not error.related]
    for label in where[:1]:
        at = label.span.start if label else 0
        start, end = line_bounds(text, at, at)
        try:
            tree = tree_of(spaces(text[:start]) + text[start:end] + spaces(text[end:]))
        except UnexpectedToken:
            return None, ()
        file, found = check(Lifter(source).file(tree, ()))
        return file.train, found if file.train is not None else ()
    return None, ()
