"""Find the definition of a name in a spec: the extended spec, the file, or the `data` block with this name."""

from __future__ import annotations

import os

from xpc.compiler.language_server.cursor_context import CursorContext, locations
from xpc.grammar.record import record


@record
class Target:
    """The result of "go to definition": a file, with the start and the end of the name in its definition. Both are 0 if
    the definition is in another file, whose beginning is then shown.
    """

    path: str
    start: int = 0
    end: int = 0


def definition(location: CursorContext, text: str, path: str) -> Target | None:
    """The definition of a word: the file whose path the word is, in quotes and relative to the spec; or the block `data
    NAME { }` in the same text. None if there is no definition.
    """
    word = location.token.text
    if word.startswith('"'):
        found = os.path.join(os.path.dirname(path), word.strip('"'))
        return Target(os.path.normpath(found)) if os.path.isfile(found) else None
    before = None
    for one in locations(text):
        if before is not None and before.first and before.token.text == "data" and one.token.text == word:
            return Target(path, one.token.start, one.token.end)
        before = one
    return None
