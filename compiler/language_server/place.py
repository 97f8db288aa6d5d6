"""What stands at an offset of a text that somebody is typing: the block it is in, and the name or value there.

The text may be broken anywhere behind the offset or before it, so this reads tokens and no tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.language.schema import BY_PATH, CLAUSES, bare_choices, outer_names
from xpc.grammar.record import mutable, record

TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[{}()\[\]=,\n]|[^\s{}()\[\]=,"#]+')


@record
class Token:
    """A word, a text in quotes, a comment or a mark, at [start, end)."""

    start: int
    end: int
    text: str


@record
class Place:
    """A token in its surroundings.

    `clause` is the path of the block that it stands in, or of the clause on whose line it stands, empty at the top;
    `key` is the name before the `=` whose value it is; `first` says that a statement of its own begins there.
    """

    token: Token
    clause: str = ""
    key: str = ""
    first: bool = False


@mutable
class Frame:
    """An open bracket, or the top of the text: whose it is, and the statement that is being read."""

    bracket: str
    path: str
    head: str = ""
    last: str = ""
    key: str = ""
    value: bool = False

    def end(self) -> None:
        """The statement is over."""
        self.head = self.last = self.key = ""
        self.value = False


def tokens(text: str) -> Iterator[Token]:
    """Every token of a text, with newlines and without other spaces."""
    return (Token(found.start(), found.end(), found[0]) for found in TOKEN.finditer(text))


def places(text: str) -> Iterator[Place]:
    """Every word and quoted text with its surroundings."""
    stack = [Frame("", "")]
    for token in tokens(text):
        here, mark = stack[-1], token.text
        if mark in "({[":
            stack.append(Frame(mark, _opened_path(here, mark), key=here.key if mark == "[" else ""))
        elif mark in ")}]":
            if len(stack) > 1:
                stack.pop()
        elif mark == "=":
            here.key, here.value = here.last, True
        elif mark in (",", "\n"):
            if here.bracket != "[":
                here.end()
        elif not mark.startswith("#"):
            yield _place_of(here, token)


def _place_of(here: Frame, token: Token) -> Place:
    """The place of a word, which the frame then counts as read."""
    if here.bracket == "[":
        return Place(token, here.path, here.key)
    if here.value:
        here.value = False
        return Place(token, _statement_path(here), here.key)
    here.key, here.last = "", token.text
    if not here.head:
        here.head = token.text
        return Place(token, here.path, first=True)
    return Place(token, _statement_path(here))


def _statement_path(here: Frame) -> str:
    """The path that a word behind the head of a statement belongs to."""
    return (_path(here.path, here.head) if here.head else "") or here.path


def _opened_path(here: Frame, mark: str) -> str:
    if mark == "[":
        return _statement_path(here)
    named = here.head if mark == "{" else here.last or here.head
    return _path(here.path, named) or _statement_path(here)


def _path(inside: str, name: str) -> str:
    """The block that a name opens: `packing` in `batch` is batch.packing, `adamw(` is optimizer; else empty."""
    nested = f"{inside}.{name}"
    if nested in BY_PATH:
        return nested
    if name in CLAUSES:
        return name
    return bare_choices().get(name) or outer_names().get(name) or ""


def place_at(text: str, offset: int) -> Place:
    """The word that an offset touches, or an empty one there, as if something were being typed."""
    typed = next((one for one in tokens(text) if one.start < offset <= one.end and one.text not in "({[)}]=,\n"), None)
    if typed is not None and typed.text.startswith("#"):
        return Place(Token(offset, offset, ""), key="#")
    if typed is None:
        typed = next((one for one in tokens(text) if one.start == offset and re.match(r"[\w\"]", one.text)), None)
    if typed is not None:
        return next(one for one in places(text[: typed.end]) if one.token == typed)
    *_, last = places(text[:offset] + "\0")
    return Place(Token(offset, offset, ""), last.clause, last.key, last.first)


def setting_of_value(place: Place) -> str:
    """The path of the setting whose value stands there, empty where it is no value."""
    if not place.key:
        return ""
    ways = (f"{place.clause}.{place.key}", place.clause if place.clause.rpartition(".")[2] == place.key else "")
    return next((one for one in ways if one in BY_PATH), outer_names().get(place.key, ""))


def setting_named(place: Place) -> str:
    """The path of the setting or clause that the word is the name or a bare choice of, empty where it is neither."""
    if place.key:
        return ""
    name = place.token.text
    ways = (f"{place.clause}.{name}", name if place.first else "", outer_names().get(name, ""))
    found = next((one for one in ways if one in BY_PATH or (one in CLAUSES and one)), "")
    return found or bare_choices().get(name, "")
