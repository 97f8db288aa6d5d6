"""Find out what a word of a text means while the text is edited: the word at an offset, the block that contains the
word, and, if the word is a value, the setting that gets this value.

A text that is being edited may have syntax errors anywhere. So this module reads the tokens of the text, and not its
syntax tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.language.schema import ADAPTERS, BY_PATH, CLAUSES, bare_choices, outer_names
from xpc.grammar.record import evolve, mutable, record

TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[{}()\[\]=,\n]|[^\s{}()\[\]=,"#]+')


@record
class Token:
    """A word, a quoted text, a comment or a punctuation mark, at the offsets [start, end)."""

    start: int
    end: int
    text: str


@record
class CursorContext:
    """A token and its context.

    `clause` is the path of the block that contains the token. Outside of blocks, it is the path of the clause on the
    token's line, or "" at the top level. If the token is a value, `key` is the name before the `=`. `first` is true for
    the first word of a statement. `chosen` is the choice that is already written for the clause: `sft` in `method
    sft(...)`, `qlora` in `qlora(...)`. `follows` is the word directly before the token. `begins` is true if nothing but
    comments precedes the token in the file. `written` has the paths of the settings that other words name.
    """

    token: Token
    clause: str = ""
    key: str = ""
    first: bool = False
    chosen: str = ""
    follows: str = ""
    begins: bool = False
    written: frozenset[str] = frozenset()


@mutable
class Frame:
    """The state for one open bracket, or for the top level, while the text inside it is read: the path of the block,
    the choice before the bracket, and the words of the current statement.
    """

    bracket: str
    path: str
    opener: str = ""
    choice: str = ""
    head: str = ""
    last: str = ""
    key: str = ""
    value: bool = False

    def end(self) -> None:
        """End the statement: forget its words."""
        self.head = self.last = self.key = self.choice = ""
        self.value = False


def tokens(text: str) -> Iterator[Token]:
    """Every token of a text, including newlines but no other white space."""
    return (Token(found.start(), found.end(), found[0]) for found in TOKEN.finditer(text))


def locations(text: str) -> Iterator[CursorContext]:
    """Yield every word and quoted text with its context."""
    stack = [Frame("", "")]
    for token in tokens(text):
        here, mark = stack[-1], token.text
        if mark in "({[":
            opener = here.last if mark == "(" else here.choice or here.head
            stack.append(Frame(mark, _opened_path(here, mark), opener, key=here.key if mark == "[" else ""))
        elif mark in ")}]":
            if len(stack) > 1:
                stack.pop()
        elif mark == "=":
            here.key, here.value = here.last, True
        elif mark in (",", "\n"):
            if here.bracket != "[":
                here.end()
        elif not mark.startswith("#"):
            yield _context_of(here, token)


def _context_of(here: Frame, token: Token) -> CursorContext:
    """The context of a word. `here` is the state of the current statement, to which this function adds the word."""
    if here.bracket == "[":
        return CursorContext(token, here.path, here.key)
    if here.value:
        here.value = False
        return CursorContext(token, _statement_path(here), here.key)
    follows, here.key, here.last = here.last, "", token.text
    if not here.head:
        here.head = token.text
        return CursorContext(token, here.path, first=True, chosen=here.opener)
    before, here.choice = here.choice, here.choice or token.text
    return CursorContext(token, _statement_path(here), chosen=before or here.opener, follows=follows)


def _statement_path(here: Frame) -> str:
    """The path of the block or clause to which the next words of the current statement belong."""
    return (_path(here.path, here.head) if here.head else "") or here.path


def _opened_path(here: Frame, mark: str) -> str:
    if mark == "[":
        return _statement_path(here)
    named = here.head if mark == "{" else here.last or here.head
    return _path(here.path, named) or _statement_path(here)


def _path(inside: str, name: str) -> str:
    """The path of the block or clause that a name opens. `packing` inside of `batch` opens batch.packing, and `adamw(`
    opens optimizer. "" if the name opens no block or clause.
    """
    nested = f"{inside}.{name}"
    if nested in BY_PATH:
        return nested
    if name in CLAUSES:
        return name
    return bare_choices().get(name) or outer_names().get(name) or ""


def context_at(text: str, offset: int) -> CursorContext:
    """The word at an offset, with its context. If there is no word at the offset, the word is empty."""
    typed = next((one for one in tokens(text) if one.start < offset <= one.end and one.text not in "({[)}]=,\n"), None)
    if typed is not None and typed.text.startswith("#"):
        return CursorContext(Token(offset, offset, ""), key="#")
    if typed is None:
        typed = next((one for one in tokens(text) if one.start == offset and re.match(r"[\w\"]", one.text)), None)
    if typed is not None:
        found = next(one for one in locations(text[: typed.end]) if one.token == typed)
    else:
        typed = Token(offset, offset, "")
        *_, last = locations(text[:offset] + "\0")
        found = evolve(last, token=typed)
    written = frozenset(setting_named(one) for one in locations(text) if one.token != typed)
    return evolve(found, begins=_is_blank(text[: typed.start]), written=written)


def _is_blank(text: str) -> bool:
    """Whether a text has only comments and white space."""
    return all(one.text == "\n" or one.text.startswith("#") for one in tokens(text))


def setting_of_value(location: CursorContext) -> str:
    """The path of the setting whose value the word is. "" if the word is not a value."""
    if not location.key:
        return ""
    ways = (
        f"{location.clause}.{location.key}",
        location.clause if location.clause.rpartition(".")[2] == location.key else "",
    )
    return next((one for one in ways if one in BY_PATH), outer_names().get(location.key, ""))


def setting_named(location: CursorContext) -> str:
    """The path of the setting or clause that the word names, or "". A choice that may stand without the name of its
    setting, such as `adamw`, counts as this setting.
    """
    if location.key:
        return ""
    name, clause = location.token.text, "lora" if location.clause in ADAPTERS else location.clause
    ways = (f"{clause}.{name}", name if location.first else "", outer_names().get(name, ""))
    found = next((one for one in ways if one in BY_PATH or (one in CLAUSES and one)), "")
    return found or bare_choices().get(name, "")
