"""Every code that the grammar reports: its slug, and the paragraph that `xpc explain` prints."""

from __future__ import annotations

from xpc.grammar.record import record


@record
class Code:
    """One kind of syntax finding."""

    code: str
    slug: str
    text: str


INVALID_UTF8 = Code(
    "XP001",
    "invalid-utf8",
    "A specification is UTF-8 text. These bytes are not, so their meaning is unknown. Save the file as UTF-8.",
)
CONTROL_CHARACTER = Code(
    "XP002",
    "control-character",
    "NUL, other control characters and the Unicode line separators are invisible, or break lines in one editor "
    "and not in another, so that a place in the file is ambiguous. Only tabs and newlines are allowed.",
)
BIDI_CONTROL = Code(
    "XP003",
    "bidi-control",
    "Bidirectional control characters make a text look different from what it says: a reviewer sees one setting "
    "and the compiler another. They are not allowed, not even in comments.",
)
TOO_LARGE = Code(
    "XP004",
    "too-large",
    "A specification is written by hand and stays small, so a text over the limit was passed by mistake. Long "
    'texts such as chat templates go into their own files: `file("template.jinja")`.',
)
TOO_DEEP = Code(
    "XP005",
    "too-deep",
    "Blocks, lists and calls nest a few levels deep in practice. The limit keeps a hostile text from "
    "exhausting the compiler.",
)
TOO_MANY_ERRORS = Code(
    "XP006",
    "more-errors",
    "Only the first syntax errors are shown. Correct them and check again.",
)
UNCLOSED_STRING = Code(
    "XP010",
    "unclosed-string",
    "A text between double quotes ends on the line that it begins on. Write a newline inside it as `\\n`, and "
    'a quote as `\\"`.',
)
BAD_ESCAPE = Code(
    "XP011",
    "bad-escape",
    'Four escapes exist between quotes: `\\"`, `\\\\`, `\\n` and `\\t`. A backslash that means itself is written '
    "twice.",
)
UNCLOSED_BRACKET = Code(
    "XP012",
    "unclosed-bracket",
    "Each `{`, `[` and `(` needs its closing partner. A block over several lines ends with `}` on its own line.",
)
STRAY_BRACKET = Code(
    "XP013",
    "stray-bracket",
    "This closing bracket has no partner before it. Often the opening one is missing on a line above.",
)
UNEXPECTED_CHARACTER = Code(
    "XP014",
    "unexpected-character",
    "Outside quotes and comments the language uses ASCII letters, digits, `_ - . : / @ %`, brackets, `=`, `,` and `#`.",
)
INCOMPLETE_SENTENCE = Code(
    "XP020",
    "incomplete-sentence",
    "The header is one sentence on one line: `train MODEL on DATA`, then perhaps `for 3 epochs`, then perhaps "
    "`with` and choices or settings.",
)
MISSING_VALUE = Code(
    "XP021",
    "missing-value",
    "A setting is `name = value`. The value is a number, a text in quotes, a name or reference, a list, a "
    "call, or a count such as `8 x h100-80gb`.",
)
ONE_LINE_BLOCK = Code(
    "XP022",
    "one-line-block",
    "A block has one setting on each line, between a `{` that ends a line and a `}` on its own line; or all of it"
    " is on one line, and commas separate its settings: `batch { gbs = 528, micro = 11 }`. A last comma is fine.",
)
TRAILING_TEXT = Code(
    "XP023",
    "trailing-text",
    "A newline ends a statement, and each statement is on its own line.",
)
BAD_LIST = Code(
    "XP024",
    "bad-list",
    "Lists and call arguments are separated by commas: `[0.9, 0.95]`, `lora(rank=16, alpha=32)`. A trailing "
    "comma is fine.",
)
UNEXPECTED = Code(
    "XP025",
    "unexpected",
    "A statement is `name = value`, or a name with choices and values on its line and perhaps a block: "
    "`optimizer adamw { ... }`.",
)
RESERVED_WORD = Code(
    "XP030",
    "reserved-word",
    "`train`, `on`, `for`, `with`, `extends`, `x` and `xpc` are words of the language and cannot be names. As the"
    " value of a setting (`split = train`) they are free.",
)
MISPLACED_BUDGET = Code(
    "XP031",
    "misplaced-budget",
    "The budget comes before the choices: `train MODEL on DATA for 3 epochs with ...`.",
)
SECOND_SENTENCE = Code(
    "XP032",
    "misplaced-sentence",
    "A specification describes one run: it has one `train` sentence, before all clauses and outside of every block.",
)
MISPLACED_EXTENDS = Code(
    "XP033",
    "misplaced-extends",
    "`extends` names the base before anything else, so that what follows can replace it: it is written once, "
    "before `train` and the clauses.",
)
MISPLACED_EDITION = Code(
    "XP034",
    "misplaced-edition",
    "The edition decides how everything after it is read, so `xpc 1` is the first line.",
)
UNKNOWN_EDITION = Code(
    "XP035",
    "unknown-edition",
    "An edition fixes what a text means. This compiler knows edition 1.",
)
MALFORMED_NUMBER = Code(
    "XP040",
    "malformed-number",
    "Numbers are `528`, `1_000`, `0.95`, `1e-5` or `-1`, perhaps directly followed by a unit of letters or `%`: "
    "`500M`, `10%`, `14400s`. A name begins with a letter.",
)
INFINITE_NUMBER = Code(
    "XP041",
    "infinite-number",
    "This number is larger than a double can hold, so it would silently become infinity.",
)
LONG_NUMBER = Code(
    "XP042",
    "long-number",
    "No quantity of an experiment needs this many characters; the number was probably pasted by mistake.",
)
COUNT_SPACING = Code(
    "XP043",
    "count-spacing",
    "A count is a number, the word `x` and a name, with spaces between: `8 x h100-80gb`. Without the space, "
    "`8x` is the number 8 with a unit `x`, which does not exist.",
)
SPLIT_SPELLING = Code(
    "XP044",
    "split-spelling",
    "A split follows its dataset in brackets, without a space, and a part of it is its first rows: `name[train]`,"
    " `name[train:20%]`, `name[train:1000]`. The datasets library writes `train[:20%]`. Ranges that begin later "
    "and sums of splits do not exist.",
)

CODES: dict[str, Code] = {value.code: value for value in list(globals().values()) if isinstance(value, Code)}
