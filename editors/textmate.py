"""`python editors/textmate.py`: write the TextMate grammar of the VS Code extension from the table of settings."""

from __future__ import annotations

import json
import os
import re

from xpc.compiler.language.schema import CLAUSES, EXTRA_TARGETS, SOURCE_SETTINGS, TABLE, bare_choices

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vscode", "syntaxes", "xp.tmLanguage.json")
KEYWORDS = (
    "xpc",
    "train",
    "extends",
    "on",
    "for",
    "with",
    "epochs",
    "epoch",
    "steps",
    "tokens",
    "zip",
    "file",
    "all-linear",
)


def _words(names: set[str]) -> str:
    r"""A pattern for complete names. Names may contain `-` and `.`, where `\b` would end them."""
    longest_first = sorted(names, key=lambda one: (-len(one), one))
    return rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.-])"


def grammar() -> str:
    """The TextMate grammar as JSON."""
    clauses = {*CLAUSES, *EXTRA_TARGETS}
    settings = {row.name for row in TABLE} | set(SOURCE_SETTINGS)
    values = {*bare_choices(), *(one for row in TABLE for one in row.choices), "true", "false", "never", "cpu"}
    patterns = [
        ("comment.line.number-sign.xp", r"#.*$"),
        ("string.quoted.double.xp", r'"(?:[^"\\]|\\.)*"?'),
        ("keyword.control.xp", _words({*KEYWORDS})),
        ("variable.other.property.xp", _words(settings) + r"(?=\s*=)"),
        ("entity.name.type.clause.xp", r"(?:^|(?<=[{;]))\s*" + _words(clauses)),
        ("constant.language.xp", _words(values - clauses - settings)),
        ("variable.other.property.xp", _words(settings | clauses)),
        (
            "constant.numeric.xp",
            r"(?<![\w.-])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:%|[A-Za-z]{1,3}(?![\w-]))?(?![\w.-])",
        ),
        ("keyword.operator.xp", r"="),
    ]
    found = {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "xp",
        "scopeName": "source.xp",
        "fileTypes": ["xp"],
        "patterns": [{"name": name, "match": match} for name, match in patterns],
    }
    return json.dumps(found, indent=2) + "\n"


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as handle:
        handle.write(grammar())
