"""The one door to Lark: imports it without what it does not need here, and lexes for its parser.

Lark's own contextual lexer compiles one regular expression for every set of terminals that some parser state accepts:
fifty here, about 8 ms for a short file. In this grammar only the words (`train`, `on`, `x`) depend on the state, so
`WordLexer` compiles one expression and asks the parser state only whether a name is a word there. A test holds the two
lexers equal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from typing import Any

# Lark imports the third-party `regex` module wherever it is installed (7 ms) and uses it only for Lark(regex=True).
# A None entry makes that import fail; it stands only while Lark loads, and only where nobody has loaded either one yet.
_hide_regex = "lark" not in sys.modules and "regex" not in sys.modules
if _hide_regex:
    sys.modules["regex"] = None  # type: ignore[assignment]
try:
    from lark import Lark, Token, Tree
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
    from lark.lexer import Lexer, LexerState, PatternStr
finally:
    if _hide_regex:
        del sys.modules["regex"]

__all__ = ["Lark", "Token", "Tree", "UnexpectedCharacters", "UnexpectedInput", "UnexpectedToken", "WordLexer", "load"]


class WordLexer(Lexer):
    """Tokens for Lark's LALR parser from one regular expression. Positions are offsets only."""

    def __init__(self, conf: Any, states: dict[Any, Collection[str]], always_accept: Collection[str] = ()) -> None:
        patterns = sorted(
            (terminal for terminal in conf.terminals if not isinstance(terminal.pattern, PatternStr)),
            key=lambda terminal: -terminal.priority,
        )
        self._fixed = {
            terminal.pattern.value: terminal.name
            for terminal in conf.terminals
            if isinstance(terminal.pattern, PatternStr)
        }
        marks = "".join(re.escape(text) for text in self._fixed if not text.isalnum())
        groups = [f"(?P<{terminal.name}>{terminal.pattern.to_regexp()})" for terminal in patterns]
        self._match = re.compile("|".join([*groups, f"[{marks}]"])).match
        self._ignored = frozenset(conf.ignore)
        self._accepts = {state: frozenset(names) for state, names in states.items()}

    def lex(self, lexer_state: LexerState, parser_state: Any) -> Iterator[Token]:
        """The tokens; a name is a word where the parser accepts that word."""
        text, at = lexer_state.text.text, lexer_state.text.start
        while at < len(text):
            found = self._match(text, at)
            if found is None:
                raise UnexpectedCharacters(text, at, 0, 0, state=parser_state)  # type: ignore[no-untyped-call]
            kind, value, start, at = found.lastgroup, found[0], at, found.end()
            if kind in self._ignored:
                continue
            if kind is None:
                kind = self._fixed[value]
            elif kind == "NAME":
                word = self._fixed.get(value)
                if word in self._accepts[parser_state.position]:
                    kind = word
            token = Token(kind, value, start, 0, 0, 0, 0, at)
            lexer_state.last_token = token
            yield token


def load(data: dict[str, Any], memo: dict[int, Any]) -> Lark:
    """The parser from the tables that `xpc.grammar.build` wrote: Lark's own load path, without its grammar compiler."""
    parser: Lark = Lark._load_from_dict(data, memo, _plugins={"ContextualLexer": WordLexer})  # type: ignore[no-untyped-call]
    return parser
