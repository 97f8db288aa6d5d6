"""Find the definition to which a word in a spec refers: an extended spec, another file, or a `data` block with this
name.
"""

from __future__ import annotations

import os
from itertools import pairwise

from xpc.compiler.language_server.cursor_context import CursorContext, locations
from xpc.grammar.record import record


@record
class Target:
    """The result of "go to definition": a file, and the offsets in it at which the defined name starts and ends. If the
    definition is another file, both offsets are 0, and the editor shows the beginning of this file.
    """

    path: str
    start: int = 0
    end: int = 0


def definition(location: CursorContext, text: str, path: str) -> Target | None:
    """Find the definition of a word. If the word is a path in quotes (relative to the spec), this is the file; if it is
    the name of data, the block `data NAME { }` in the same text. None if there is no definition.
    """
    word = location.token.text
    if word.startswith('"'):
        found = os.path.join(os.path.dirname(path), word.strip('"'))
        return Target(os.path.normpath(found)) if os.path.isfile(found) else None
    for before, one in pairwise(locations(text)):
        if before.first and before.token.text == "data" and one.token.text == word:
            return Target(path, one.token.start, one.token.end)
    return None
