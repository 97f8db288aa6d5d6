"""Highlight a spec by meaning. A word such as `optimizer` can be a setting in one place and a choice in another; each
meaning has its own colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.language.schema import CLAUSES
from xpc.compiler.language_server.cursor_context import locations, setting_named, tokens
from xpc.grammar.record import record

TYPES = ("keyword", "property", "enumMember", "number", "string", "comment", "type")
KEYWORDS = ("xpc", "train", "on", "for", "with", "extends", "x", "epochs", "steps")
NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?[%A-Za-z]*")


@record
class Coloured:
    """A token at the offsets [start, end) and its kind, one of TYPES."""

    start: int
    end: int
    sort: str


def coloured(text: str) -> Iterator[Coloured]:
    """Yield every word, quoted text and comment of a spec with its kind, in the order of the text."""
    seen = {one.token.start: one for one in locations(text)}
    for token in tokens(text):
        location = seen.get(token.start)
        if token.text.startswith("#"):
            yield Coloured(token.start, token.end, "comment")
        elif location is None:
            continue
        elif token.text.startswith('"'):
            yield Coloured(token.start, token.end, "string")
        elif NUMBER.fullmatch(token.text):
            yield Coloured(token.start, token.end, "number")
        elif location.key:
            yield Coloured(token.start, token.end, "enumMember")
        elif (location.first and token.text in CLAUSES) or token.text in KEYWORDS:
            yield Coloured(token.start, token.end, "keyword")
        else:
            yield Coloured(token.start, token.end, "property" if setting_named(location) else "type")
