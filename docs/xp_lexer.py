"""Colours of `xp` blocks on the site: a Pygments lexer made from the TextMate grammar of the VS Code extension.

`make docs` writes that grammar from the language's table, so the site colours the same words as the editor.
"""

from __future__ import annotations

import json
import os

from pygments.lexer import RegexLexer
from pygments.lexers import LEXERS
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text, _TokenType

__all__ = ("XpLexer",)

HERE = os.path.dirname(os.path.abspath(__file__))
GRAMMAR = os.path.join(os.path.dirname(HERE), "editors", "vscode", "syntaxes", "xp.tmLanguage.json")
TOKENS = {
    "comment": Comment.Single,
    "string": String,
    "keyword.control": Keyword,
    "keyword.operator": Operator,
    "variable": Name.Attribute,
    "entity": Name.Class,
    "constant.language": Keyword.Constant,
    "constant.numeric": Number,
}
"""Maps the beginning of a TextMate scope's name to the token of Pygments."""


def _rules() -> list[tuple[str, _TokenType]]:
    with open(GRAMMAR, encoding="utf-8") as handle:
        patterns = json.load(handle)["patterns"]
    rules = [
        (one["match"], next(token for scope, token in TOKENS.items() if one["name"].startswith(scope)))
        for one in patterns
    ]
    return [*rules, (r"[\w.-]+", Name), (r"\s+|.", Text)]


class XpLexer(RegexLexer):
    """The experiment language."""

    name = "xp"
    aliases = ("xp",)
    filenames = ("*.xp",)
    tokens = {"root": _rules()}  # noqa: RUF012


def register() -> None:
    """Register the lexer with Pygments."""
    LEXERS["XpLexer"] = (__name__, XpLexer.name, XpLexer.aliases, XpLexer.filenames, ())
