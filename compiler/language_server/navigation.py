"""Go to definition: from a name in a spec to the extended spec, the file, or the `data` block with that name."""

from __future__ import annotations

import os

from xpc.compiler.language_server.place import Place, places
from xpc.grammar.record import record


@record
class Target:
    """The target of "go to definition": a file, and the start and end of the name if the definition is in the same
    file, otherwise (0, 0).
    """

    path: str
    start: int = 0
    end: int = 0


def definition(place: Place, text: str, path: str) -> Target | None:
    """The definition of a word: a quoted file relative to the spec, or the block `data NAME { }` in the same text; None
    if there is none.
    """
    word = place.token.text
    if word.startswith('"'):
        found = os.path.join(os.path.dirname(path), word.strip('"'))
        return Target(os.path.normpath(found)) if os.path.isfile(found) else None
    before = None
    for one in places(text):
        if before is not None and before.first and before.token.text == "data" and one.token.text == word:
            return Target(path, one.token.start, one.token.end)
        before = one
    return None
