"""The codes of all syntax errors, each with its slug (a short name). Their explanations are in `codes.toml`."""

from __future__ import annotations

from xpc.grammar.record import record


@record
class Code:
    """A kind of syntax error: its code and its slug."""

    code: str
    slug: str


INVALID_UTF8 = Code("XP001", "invalid-utf8")
CONTROL_CHARACTER = Code("XP002", "control-character")
BIDI_CONTROL = Code("XP003", "bidi-control")
TOO_LARGE = Code("XP004", "too-large")
TOO_DEEP = Code("XP005", "too-deep")
TOO_MANY_ERRORS = Code("XP006", "more-errors")
UNCLOSED_STRING = Code("XP010", "unclosed-string")
BAD_ESCAPE = Code("XP011", "bad-escape")
UNCLOSED_BRACKET = Code("XP012", "unclosed-bracket")
STRAY_BRACKET = Code("XP013", "stray-bracket")
UNEXPECTED_CHARACTER = Code("XP014", "unexpected-character")
INCOMPLETE_SENTENCE = Code("XP020", "incomplete-sentence")
MISSING_VALUE = Code("XP021", "missing-value")
ONE_LINE_BLOCK = Code("XP022", "one-line-block")
TRAILING_TEXT = Code("XP023", "trailing-text")
BAD_LIST = Code("XP024", "bad-list")
UNEXPECTED = Code("XP025", "unexpected")
RESERVED_WORD = Code("XP030", "reserved-word")
MISPLACED_BUDGET = Code("XP031", "misplaced-budget")
SECOND_SENTENCE = Code("XP032", "misplaced-sentence")
MISPLACED_EXTENDS = Code("XP033", "misplaced-extends")
MISPLACED_EDITION = Code("XP034", "misplaced-edition")
UNKNOWN_EDITION = Code("XP035", "unknown-edition")
MALFORMED_NUMBER = Code("XP040", "malformed-number")
INFINITE_NUMBER = Code("XP041", "infinite-number")
LONG_NUMBER = Code("XP042", "long-number")
COUNT_SPACING = Code("XP043", "count-spacing")
SPLIT_SPELLING = Code("XP044", "split-spelling")

CODES: dict[str, Code] = {value.code: value for value in list(globals().values()) if isinstance(value, Code)}
