"""Write the message for a syntax error in the first line of a spec, such as `train M on D 3 epochs`."""

from __future__ import annotations

import re

from xpc.grammar import codes
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.parser_position import ParserPosition
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

FORMS = (
    (
        re.compile(r"(?:(?:over|during|in|about|until|up to)\s+)?(\d[\d_]*)\s*(epochs?|steps?)\b"),
        r"write `for \1 \2`",
    ),
    (re.compile(r"(?:num_)?(?:train_)?(epochs)\s*=?\s*(\d+)"), r"write `for \2 \1`"),
    (re.compile(r"(?:max_)?(steps)\s*=?\s*(\d+)"), r"write `for \2 \1`"),
    (
        re.compile(r"(?:and\s+)?sav(?:e|ing|ed)\s+(?:it\s+)?(?:(?:in)?to\s+|in\s+|at\s+|as\s+)?\"?([^\s\"]+)"),
        r'write `save "\1"` on a line of its own',
    ),
    (
        re.compile(r"(?:and\s+)?(?:log|track|report)\w*\s+(?:to|with|in|on|by)\s+([a-z]\w*)"),
        r"write `track \1` on a line of its own",
    ),
    (re.compile(r"(using|and|via|plus|by)\b"), r"write `with` instead of `\1`"),
    (re.compile(r"without\s+(\S+)"), r"leave `without \1` out, or write `with \1=false` for a switch"),
    (
        re.compile(r"(train|test|validation|dev)\s+(?:split|set)\b"),
        r"write `{data}[\1]`: the split follows the dataset's name",
    ),
    (re.compile(r"until\b"), r"write `for 3 epochs`; `eval(patience=3)` ends a run that no longer improves"),
    (re.compile(r"split\s*=?\s*\"?([\w-]+)"), r"write `{data}[\1]`: the split follows the dataset's name"),
    (re.compile(r"(?:in)?to\s+\"?([^\s\"]+)"), r'write `save "\1"` on a line of its own'),
    (
        re.compile(r"(\"[^\"\n]+\")"),
        r"write `on \1`: data is one name, and its settings go below, as in `data(streaming)`",
    ),
    (
        re.compile(r"on\s+(\d+)\s*(?:x\s*)?(?:gpu|card|device)s?\b"),
        r"write `hardware \1 x GPU` on a line of its own, with the name of your GPU",
    ),
    (re.compile(r"on\s+(\d+)\s*(?:x\s*)?([\w-]+)"), r"write `hardware \1 x \2` on a line of its own"),
)
"""Pairs of a pattern and a help. The pattern matches a wrong text after the dataset in the first line, such as
`epochs=3`.
"""
ACTION = re.compile(r"(?:,\s*|and\s+)(?:sav|log|track|report|eval|comput|once|twice|us|push|stop|hold|keep|test|valid)")
COUNT = re.compile(r"\b(for\s+(\d[\d_]*)([A-Za-z]*))\s*(?:with\s+|#.*)?$")
"""Matches a length without its unit, as in `for 3`, at the end of the text before an error in the first line. `with` or
a comment may follow the length.
"""
NO_DATA = re.compile(r"\bon[ \t]+(?:for|with)[ \t]+$")
"""Matches `on for` or `on with` at the end of the text before an error in the first line. The parser has read `for` or
`with` as the name of the dataset.
"""
INSTEAD_OF_ON = ("using", "over", "from", "against", "to", "at", "in")
"""Words that users write before the dataset instead of `on`."""


def in_sentence(location: ParserPosition) -> Diagnostic:
    """The error in the first line of a spec, at the place where the parser stopped."""
    kinds = [item.kind for item in location.stack]
    since = kinds[len(kinds) - 1 - kinds[::-1].index("TRAIN") :]
    if location.met == "LBRACE":
        return _error(location, "the sentence takes no block", "write clauses on the lines below")
    early = _missing_data(location) or _length(location, since)
    if early is not None:
        return early
    if "ON" not in since:
        return _before_data(location)
    return _bracket(location, since) or _separator(location, since) or _after_data(location, since)


def _error(location: ParserPosition, message: str, help: str | None = None, at_last: bool = False) -> Diagnostic:
    return location.error(codes.INCOMPLETE_SENTENCE, message, help, at_last=at_last)


def _missing_data(location: ParserPosition) -> Diagnostic | None:
    """The error for `train M on for 3 epochs`, whose dataset is missing."""
    if not NO_DATA.search(location.source.text[: location.span.start]):
        return None
    return _error(
        location, f"expected a dataset after `on`, found `{location.word}`", "train MODEL on DATA", at_last=True
    )


def _length(location: ParserPosition, since: list[str]) -> Diagnostic | None:
    """The error for a length without its unit, such as `for 3 with lora`, or without a space, such as `for 3epochs`.

    `since` lists the kinds of the tokens that the parser has read after `train`.
    """
    # in `for 3epochs with lora`, the parser reads `with` as the unit of the length
    count = COUNT.search(location.source.text[: location.span.start]) if location.word == "with" else None
    if count is not None and count[3]:
        return _joined_length(location, count[2], count[3], Span(count.start(2), count.end(3)))
    if count is not None:
        message = f"expected `epochs` or `steps` after `for {count[2]}`, found `with`"
        return _error(location, message, _lengths(count[2]), at_last=True)
    if "FOR" not in since or since[-1] != "NUMBER":
        return None
    joined = re.fullmatch(r"([0-9_.]+)([A-Za-z]+)", location.word)
    if joined and location.before:
        return _joined_length(location, joined[1], joined[2], location.before)
    message = f"expected `epochs` or `steps` after `for {location.word}`"
    return _error(location, message, _lengths(location.word), at_last=True)


def _bracket(location: ParserPosition, since: list[str]) -> Diagnostic | None:
    """The error for a bracket after the dataset, such as `D[train:20%]` or `D(streaming)`."""
    if location.met == "LSQB" and "WITH" in since:
        return _error(location, "a list can only be the value of a setting", "write `name=[...]`")
    if location.met == "LSQB":
        remedy = f"write `{location.word}[train:20%]` for the first 20 % of a split; `data(holdout=20%)` keeps rows out"
        return _error(location, "square brackets after a dataset need the name of a split", remedy)
    if location.met == "LPAR" and "WITH" not in since:
        remedy = (
            f"write `on rows`, and add a block `data rows {{ ... }}` below that contains `{location.word} {{ ... }}`"
        )
        return _error(location, "settings of one source go into a `data` block", remedy)
    return None


def _separator(location: ParserPosition, since: list[str]) -> Diagnostic | None:
    """The error for a `=` in the first line, and for a comma or `and` between datasets or choices."""
    if location.met == "EQUAL":
        return _error(location, "`=` follows the name of a setting", "choices and settings go after `with`")
    joined = not {"FOR", "WITH"} & {*since} and location.shown in ("`,`", "`and`", "`plus`")
    if joined and not ACTION.match(location.source.text, location.span.start):
        remedy = (
            "write `on rows`, and add a block `data rows { ... }` below that names "
            f"`{location.word}` and the others, each on its own line"
        )
        also = "; choices go after `with`" if location.met == "COMMA" else ""
        return _error(location, "several datasets go into a `data` block", remedy + also)
    if location.met == "COMMA":
        return _error(location, "unexpected `,`", "choices and settings are separated by spaces")
    return None


def _after_data(location: ParserPosition, since: list[str]) -> Diagnostic:
    """The error for a text after the dataset that belongs to no other kind of error, such as `3 epochs`."""
    if "WITH" in since:
        return _error(location, f"expected a choice, a setting or the end of the line, found {location.shown}")
    message = f"expected `for`, `with` or the end of the line, found {location.shown}"
    return _other_preposition(location) or _error(location, message, _help_after_data(location))


def _before_data(location: ParserPosition) -> Diagnostic:
    """The error in a first line without `on`."""
    code = codes.INCOMPLETE_SENTENCE
    if location.word == "on":
        return location.error(code, "expected a model after `train`", "write `train MODEL on DATA`", at_last=True)
    rest = location.source.text[
        location.span.end : line_bounds(location.source.text, location.span.end, location.span.end)[1]
    ]
    size = location.shown.strip("`")
    # the model's name is divided into two words, as in `qwen2.5 0.5b`
    if re.fullmatch(r"\d[\d.]*[bBmM]", size) and re.match(r"\s+on\s", rest) and location.before:
        edits = (Edit(Span(location.before.end, location.span.start), "-"),)
        message = f"a model's name is one word, and `{location.word} {size}` is two"
        return location.error(code, message, f"write `train {location.word}-{size} on`", edits=edits)
    if location.met == "COMMA":
        help = "write a spec for each model: `extends` shares the settings of one with the others"
        return location.error(code, "a run trains one model", help)
    data = location.shown.strip("`") if location.met in ("NAME", "REF") and " on " not in rest else "DATA"
    if data in INSTEAD_OF_ON:
        data = (rest.split() or ["DATA"])[0]
    return location.error(
        code, f"expected `on` and a dataset, found {location.shown}", f"write `train {location.word} on {data}`"
    )


def _joined_length(location: ParserPosition, amount: str, unit: str, span: Span) -> Diagnostic:
    """The error for a length without a space, such as `for 3epochs`."""
    remedy = f"{amount} {unit if unit in ('epoch', 'epochs', 'step', 'steps') else 'epochs'}"
    message = "the length of a run is a number, a space and a unit"
    code = codes.INCOMPLETE_SENTENCE
    found = location.error(code, message, f"write `for {remedy}`", edits=(Edit(span, remedy),))
    return evolve(found, primary=Label(location.source, span))


def sentence_repair(location: ParserPosition, text: str) -> Edit | None:
    """Return an edit with which the first line can be parsed, so that the rest of the file is checked. None for an
    error that cannot be repaired.

    Two errors can be repaired. A wrong word in place of `on` (`train M using D`) becomes `on`, and a length without a
    unit (`for 3 with lora`) becomes spaces. The edit keeps the length of the text.
    """
    at = location.span.start
    line, end = line_bounds(text, at, at)
    word = text[at : location.span.end]
    if word in INSTEAD_OF_ON and re.fullmatch(r'\s*train\s+("[^"\n]*"|\S+)\s+', text[line:at]):
        follows = text[location.span.end : end].strip()[:1] not in ("", "#")
        return Edit(location.span, "on".ljust(len(word))) if follows else None
    length = COUNT.search(text[line:at])
    if length is None or not text[line:at].lstrip().startswith("train"):
        return None
    return Edit(Span(line + length.start(1), line + length.end(1)), " " * len(length[1]))


def _lengths(count: str) -> str:
    count = count if count.isdecimal() else "3"
    return f"write `for {count} epochs` or `for {count} steps`"


PREPOSITION = re.compile(r"(?P<word>in|at|under)[ \t]+(?:(?P<rate>\d[\d.]*e-\d+)(?![\w.])|(?=[A-Za-z]))")
"""Matches words that users write instead of `with`, before a choice or a setting: `in bf16`, `at 2e-5`."""


BITS = re.compile(r"(?:in|at)[ \t]+(?P<bits>[48])[ -]?bits?(?![\w.-])(?:[ \t]+(?:precision|mode))?(?:[ \t]+with\b)?")
"""A pattern for quantization of the base model in words: `in 4bit`, `in 8-bit precision`."""


def _other_preposition(location: ParserPosition) -> Diagnostic | None:
    """The error for `in bf16`, `at lr=1e-5` and `at 1e-5` after the data. None for any other text."""
    bits = BITS.match(location.source.text, location.span.start)
    if bits is not None:
        form = "with qlora" if bits["bits"] == "4" else "with lora(bits=8)"
        message = f"`{bits[0]}` does not belong in the sentence"
        edits = (Edit(Span(*bits.span()), form),)
        return location.error(codes.INCOMPLETE_SENTENCE, message, f"write `{form}`", edits=edits)
    found = PREPOSITION.match(location.source.text, location.span.start)
    if found is None or (found["word"] != location.word and found["word"] != location.shown.strip("`")):
        return None
    rate = f"with lr={found['rate']}" if found["rate"] else "with"
    span = Span(found.start(), found.end()) if found["rate"] else Span(*found.span("word"))
    message = f"choices and settings go after `with`, not after `{found['word']}`"
    help = f"write `{rate}`" if found["rate"] else f"write `with` instead of `{found['word']}`"
    return location.error(codes.INCOMPLETE_SENTENCE, message, help, edits=(Edit(span, rate),))


def _help_after_data(location: ParserPosition) -> str:
    """Return the help for illegal text that follows the dataset in the first line, such as `3 epochs`."""
    for pattern, form in FORMS:
        if found := pattern.match(location.source.text, location.span.start):
            return found.expand(form).replace("{data}", location.word)
    return "choices go after `with`"
