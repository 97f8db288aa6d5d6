"""Write the message for a syntax error, from what the parser has read and from what it found next. A message never
contains the names of the grammar's tokens.
"""

from __future__ import annotations

import re
from itertools import takewhile

from xpc.grammar import codes, notations, units
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.lalr import END, UnexpectedToken
from xpc.grammar.oneline import ENDS_ON_ITS_LINE, written_out
from xpc.grammar.parser_position import ParserPosition
from xpc.grammar.record import record
from xpc.grammar.scan import closing, line_bounds
from xpc.grammar.sentence_messages import in_sentence, sentence_repair
from xpc.grammar.source import Source, Span
from xpc.grammar.splits import in_setting, misspelt

IN_A_BLOCK = "settings after a text go into a block: `{ name = value }`"
# maps the last keyword or punctuation mark of an incomplete text to the error: code, message, what to write next
_AFTER = {
    "TRAIN": (codes.INCOMPLETE_SENTENCE, "expected a model after `train`", "train MODEL on DATA"),
    "ON": (codes.INCOMPLETE_SENTENCE, "expected a dataset after `on`", "train MODEL on DATA"),
    "FOR": (codes.INCOMPLETE_SENTENCE, "expected a number after `for`", "for 3 epochs"),
    "WITH": (codes.INCOMPLETE_SENTENCE, "expected a choice or a setting after `with`", "with zero2 gbs=528"),
    "XPC": (codes.UNKNOWN_EDITION, "expected the number of the edition after `xpc`", "xpc 1"),
    "EXTENDS": (codes.MISPLACED_EXTENDS, "expected a path in double quotes after `extends`", 'extends "base.xp"'),
    "X": (codes.COUNT_SPACING, "expected a name after `x`", "8 x GPU"),
}
_PATH = re.compile(r"(?:\.{1,2}/|~/|/)[\w./-]+")
"""A pattern for a path without quotes that cannot be a name: `./tiny`, `/data/rows.jsonl`."""
_QUOTES = "“”„«»‘’"
_UNSEEN = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
"""Characters that editors do not show. They are often copied from web pages without being noticed."""
_UNQUOTED = re.compile(r"[\w./-]+")
_COUNT = re.compile(r"([0-9_]+)x(.*)")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?")


@record
class Failure:
    """A syntax error: its diagnostic, and the offset at which the parser stopped.

    `repair` is an edit with which the parser can read the rest of the line. The edit keeps the length of the text.
    """

    offset: int
    diagnostic: Diagnostic
    repair: Edit | None = None


def explain(source: Source, text: str, error: UnexpectedToken) -> Failure:
    """Explain why the parser stopped. `text` is the source text, in which `scan` has repaired unclosed brackets and
    strings.
    """
    token, met = error.token, error.token.kind
    offset = len(text) - 1 if met == END else token.start
    shown = "the end of the line" if met in ("_NL", END) else f"`{token.text}`" if met else token.text
    span = Span(offset, offset if met in ("_NL", END) else token.end)
    end = len(source.text)
    span = Span(min(span.start, end), min(span.end, end))
    location = ParserPosition(source, span, shown, met, _before(text, offset), error.stack)
    plain = _unit(location) or _clock(location, text) or _nodes(location, text)
    if plain is not None:
        return Failure(offset, *plain)
    diagnostic = _character(location, text) if not met else _token(location, text)
    repair = _comma_put(text, span, diagnostic) or _braces_put(text, span, diagnostic)
    if diagnostic.code == codes.INCOMPLETE_SENTENCE.code:
        repair = sentence_repair(location, text)
    return Failure(offset, diagnostic, repair)


def _unit(location: ParserPosition) -> tuple[Diagnostic, Edit] | None:
    """Return a pair: the error for a unit that is written as a word, as in `every = 1 epoch`, and a repair with which
    the parser can continue.
    """
    count, word, before = location.word, location.shown.strip("`"), location.before
    if (
        location.met != "NAME"
        or not units.is_unit(word)
        or before is None
        or not re.fullmatch(r"\d[\d_]*\.?\d*", count)
    ):
        return None
    if any(item.kind == "TRAIN" for item in location.stack) and location.last == "NUMBER":
        return None
    both = Span(before.start, location.span.end)
    named = re.search(r"(\w+)\s*=?\s*$", location.source.text[: before.start])
    value = units.as_value(named[1] if named else "", count, word)
    edits = () if value is None else (Edit(both, value),)
    found = location.error(codes.TRAILING_TEXT, units.message(count, word), units.remedy(value), edits=edits)
    legal = "epoch" if value is None and named and named[1] == "every" else value or count
    return found, Edit(both, legal.ljust(both.end - both.start))


def _clock(location: ParserPosition, text: str) -> tuple[Diagnostic, Edit] | None:
    """Return a pair: the error for a duration in Slurm's notation, such as `time = 12:00:00`, and a repair with which
    the parser can continue.
    """
    start = location.before.start if location.before else 0
    found = _CLOCK.match(text, start)
    if location.shown != ":" or location.before is None or found is None or found.end() <= location.span.start:
        return None
    days, hours, minutes, seconds = (int(one or 0) for one in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    value = f"{total // 3600}h" if total % 3600 == 0 else f"{total // 60}m" if total % 60 == 0 else f"{total}s"
    name = re.search(r"[A-Za-z_]([ \t]+)$", text[: found.start()][-100:])  # `time 12:00:00` lacks its `=`
    span = Span(found.start() - (len(name[1]) if name is not None else 0), found.end())
    edit = Edit(span, f"={value}" if name is not None else value)
    diagnostic = location.error(
        codes.UNEXPECTED_CHARACTER, "a duration is a number and its unit", f"write `{value}`", edits=(edit,)
    )
    return diagnostic, Edit(span, edit.text.ljust(span.end - span.start))


def _nodes(location: ParserPosition, text: str) -> tuple[Diagnostic, Edit] | None:
    """Return a pair: the error for `2 x 8 x h100-80gb`, and a repair that removes the number of machines."""
    if location.last != "X" or location.met != "NUMBER":
        return None
    nodes = re.search(r"(\d+)\s*x\s*$", text[: location.span.start])
    gpus = re.match(r"(\d+)\s+x\s+([\w.-]+)", text[location.span.start :])
    if nodes is None or gpus is None:
        return None
    remedy = f"write `{gpus[1]} x {gpus[2]}` for one machine, and `nodes {nodes[1]}` on its own line"
    diagnostic = location.error(codes.COUNT_SPACING, "a count is one number and one GPU", remedy)
    span = Span(nodes.start(), location.span.start)
    return diagnostic, Edit(span, " " * (span.end - span.start))


def _comma_put(text: str, met: Span, diagnostic: Diagnostic) -> Edit | None:
    """If `diagnostic` suggests a comma, return a repair that puts the comma in place of a space; otherwise None."""
    for edit in diagnostic.edits:
        if edit.text == "," and edit.span.start == edit.span.end < met.start and text[edit.span.end] in " \t":
            return Edit(Span(edit.span.start, edit.span.start + 1), ",")
    return None


def _before(text: str, offset: int) -> Span | None:
    """The span of the last word before an offset, on the same line. None if there is no such word."""
    line = text.rfind("\n", 0, offset) + 1
    found = re.finditer(r'"[^"]*"|[A-Za-z0-9_./:@%+\-]+|[^\s]', text[line:offset])
    words = list(takewhile(lambda word: word[0] != "#", found))  # words of a comment do not count
    return Span(line + words[-1].start(), line + words[-1].end()) if words else None


def _straight(location: ParserPosition, text: str) -> tuple[Edit, ...]:
    """The edits that replace typographic quotes by straight quotes."""
    at = location.span.start
    end = (text + "\n").index("\n", at)
    other = next((i for i in range(at + 1, end) if text[i] in _QUOTES + '"'), None)
    closes = other is not None and text[other] != '"'
    return (Edit(location.span, '"'), *((Edit(Span(other, other + 1), '"'),) if closes and other is not None else ()))


def _character(location: ParserPosition, text: str) -> Diagnostic:
    character, at = location.shown, location.span.start
    code = codes.UNEXPECTED_CHARACTER
    if character == "'":
        end = text.find("'", at + 1, (text + "\n").index("\n", at))
        edits: tuple[Edit, ...] = (Edit(location.span, '"'), Edit(Span(end, end + 1), '"')) if end > 0 else ()
        remedy = f'write `"{text[at + 1 : end]}"`' if end > 0 else 'write `"..."`'
        return location.error(code, "a text is written in double quotes", remedy, edits=edits)
    notation = notations.of_another_notation(location, text)
    if notation is not None:
        return notation
    if character in ":*" and (weighted := notations.weight_after(location, text)) is not None:
        return weighted
    if character == ":" and location.before and location.before.end == at:
        return notations.colon(location, text)
    if character == "%" and location.before and location.word.replace(".", "").isdecimal():
        return location.error(code, "unexpected `%`", f"a unit directly follows its number: write `{location.word}%`")
    if character in _QUOTES:
        return location.error(code, f"`{character}` is not a quote here", 'write `"`', edits=_straight(location, text))
    if character.isspace():
        edits = (Edit(location.span, " "),)
        return location.error(code, f"U+{ord(character):04X} is not a space here", "use a plain space", edits=edits)
    if character in _UNSEEN:
        remedy = "delete it: editors do not show it"
        return location.error(code, f"unexpected U+{ord(character):04X}", remedy, edits=(Edit(location.span, ""),))
    if not character.isascii():
        remedy = "names are ASCII letters, digits, `_`, `-` and `.`; put other text in double quotes"
        return location.error(code, f"unexpected `{character}` (U+{ord(character):04X})", remedy)
    begun = _PATH.match(text, at)
    if begun is not None:
        before = location.word if location.before and location.before.end == at else ""
        path = (before if re.fullmatch(r"[\w./-]+", before) else "") + begun[0]
        return location.error(code, f"unexpected `{character}`", f'write `"{path}"`: a path needs double quotes')
    return location.error(code, f"unexpected `{character}`", "text that is not a name needs double quotes")


def _token(location: ParserPosition, text: str) -> Diagnostic:
    last = location.last
    count = _COUNT.fullmatch(location.word)
    if count and location.met in ("NAME", "REF"):
        spaced = f"write `{count[1]} x {count[2] or location.shown.strip('`')}`"
        return location.error(codes.COUNT_SPACING, f"`{count[0]}` is not a number", spaced, at_last=True)
    if last == "EQUAL":
        if location.met == "EQUAL" and (pin := notations.pinned_target(text, location.span.start)) is not None:
            help = f"write `target {pin.text}`"
            return location.error(codes.MISSING_VALUE, "a target is one word", help, edits=(pin,))
        remedies = {"LBRACE": "a block follows its name without `=`", "LPAR": "a list is written `[0.9, 0.95]`"}
        edits: tuple[Edit, ...] = (Edit(location.span, ""),) if location.met == "EQUAL" else ()
        remedy = "write one `=` between a name and its value" if edits else remedies.get(location.met)
        if text.startswith("{{", location.span.start):
            remedy = "a spec has no variables: write the value itself"
        elif location.met == "LPAR" or notations.brackets(location, text):
            edits, remedy = notations.brackets(location, text), remedies["LPAR"]
        elif location.met == "LBRACE" and location.before is not None:
            edits = (Edit(Span(location.before.start, location.span.start), ""),)
        remedy = remedy or "write a value after it, or leave the setting out"
        return location.error(codes.MISSING_VALUE, "expected a value after `=`", remedy, at_last=True, edits=edits)
    if last not in ("EQUAL", "LSQB", "LPAR", "COMMA") and location.met in ("LSQB", "NAME", "REF"):
        split = _split(location, text)
        if split is not None:
            return split
    path = _UNQUOTED.match(text, location.span.start) if last == "EXTENDS" and location.met in ("NAME", "REF") else None
    if path is not None:
        code, message, _ = _AFTER[last]
        edits = (Edit(Span(*path.span()), f'"{path[0]}"'),)
        return location.error(code, message, f'write `extends "{path[0]}"`', edits=edits)
    if last in _AFTER:
        code, message, example = _AFTER[last]
        edits = notations.edition(location, text) if last == "XPC" else ()
        return location.error(code, message, f"write `{example}`", at_last=location.met != "NUMBER", edits=edits)
    for item in reversed(location.stack):
        kind = item.kind
        if kind in ("LSQB", "LPAR"):
            return _in_brackets(location, kind)
        if kind == "TRAIN":
            return in_sentence(location)
        if kind == "LBRACE":
            break
    return _in_statement(location, text)


def _split(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for a part of a split without the split's name, as in `capybara[:20%]`, and for similar forms."""
    kinds = [item.kind for item in location.stack]
    if "EQUAL" in kinds[-3:]:
        return (
            in_setting(location.source, text, location.before, location.span.start) if location.met == "LSQB" else None
        )
    if any(kind in ("LSQB", "LPAR") for kind in kinds):
        return None
    named = "ON" in kinds and not {"FOR", "WITH"} & set(kinds)
    return misspelt(location.source, text, location.before, location.span.start, named)


def _in_brackets(location: ParserPosition, kind: str) -> Diagnostic:
    close, what = ("`]`", "list") if kind == "LSQB" else ("`)`", "call")
    if location.last in ("LSQB", "LPAR", "COMMA", "_NL") and location.met != "EQUAL":
        if location.met == "COMMA":
            return location.error(codes.BAD_LIST, "expected a value before `,`", "one comma between two values")
        if location.met == "LBRACE":
            return location.error(codes.BAD_LIST, f"a {what} cannot contain a block")
        if location.last != "_NL":
            return location.error(codes.BAD_LIST, f"expected a value or {close}, found {location.shown}")
    if location.met == "EQUAL":
        remedy = f"a {what} contains {'values only' if kind == 'LSQB' else '`name=value` with a plain name'}"
        return location.error(codes.BAD_LIST, "unexpected `=`", remedy)
    # a quoted text that is followed by arguments, such as "rewards.py:short"(weight=2)
    if location.before and (location.last, location.met) == ("STRING", "LPAR"):
        fix = Edit(Span(location.before.start, location.span.end), f"file({location.word}, ")
        return location.error(
            codes.BAD_LIST, "text in quotes takes no arguments", f"write `{fix.text}...)`", edits=(fix,)
        )
    message = f"expected `,` or {close}, found {location.shown}"
    if not location.before or location.met not in ("NAME", "REF", "NUMBER", "STRING", "LSQB"):
        return location.error(codes.BAD_LIST, message)
    # `lora(r 16)` lacks a `=`, and `rewards = [accuracy format]` a comma
    named = kind == "LPAR" and location.word.isidentifier() and location.met in ("NUMBER", "STRING", "LSQB")
    sign, end = ("=", location.span.start) if named else (",", location.before.end)
    help = f"write `{location.word}{sign}{'' if named else ' '}{location.shown[1:-1]}`"
    return location.error(codes.BAD_LIST, message, help, edits=(Edit(Span(location.before.end, end), sign),))


def _in_statement(location: ParserPosition, text: str) -> Diagnostic:
    last, met = location.last, location.met
    opened = location.one_line
    if opened is not None:
        return _in_one_line_block(location, text, opened)
    if met == "RBRACE":
        edits = (Edit(Span(location.span.start, location.span.start), "\n"),)
        remedy = "this block has one setting on each line"
        return location.error(codes.ONE_LINE_BLOCK, "`}` goes on a line of its own", remedy, edits=edits)
    if last == "setting" and met == "LBRACE":
        return location.error(codes.UNEXPECTED, "a setting takes no block", "a block follows its name without `=`")
    last = "block" if last == "RBRACE" else last
    words = [item.kind for item in location.stack[-2:]]
    if last in ("setting", "block", "edition", "extends") or words in (["XPC", "NUMBER"], ["EXTENDS", "STRING"]):
        special = {"EQUAL": None, "LBRACE": None, "COMMA": "settings are separated by newlines"}
        ended = f"this {last}" if last in ("setting", "block") else f"`{location.word}`"
        message = f"expected the end of the line after {ended}, found {location.shown}"
        return location.error(codes.TRAILING_TEXT, message, special.get(met, "put it on its own line"))
    if met == "EQUAL":
        remedy = IN_A_BLOCK if last == "STRING" else notations.before_equals(location)
        return location.error(codes.UNEXPECTED, "`=` follows a plain name", remedy)
    if met == "LBRACE":
        message = "a block needs a name before its `{`"
        return notations.brace_below(location, text) or location.error(codes.UNEXPECTED, message, "write `batch {`")
    if met == "LSQB":
        # In `lora targets [q_proj]`, the setting `targets` lacks its `=`. The first word of a line is not reported,
        # because it may be a clause, which has no `=`.
        before = location.before
        inner = before is not None and text[text.rfind("\n", 0, before.start) + 1 : before.start].strip()
        message = "a list can only be the value of a setting"
        if (varied := notations.value_after_in(location, text)) is not None:
            return varied
        if before is not None and inner and re.fullmatch(r"[A-Za-z][\w-]*", location.word):
            edits = (Edit(Span(before.end, location.span.start), "="),)
            return location.error(codes.UNEXPECTED, message, f"write `{location.word}=[...]`", edits=edits)
        return location.error(codes.UNEXPECTED, message, "write `name = [...]`")
    if met == "LPAR":
        return _arguments_of_a_reference(location, text)
    if met == "COMMA":
        return notations.comma(location, text)
    if met == "NUMBER" and location.before is None:
        budget = re.fullmatch(r"(\d[\d_]*)(epochs?|steps?)", location.shown.strip("`"))
        if budget:  # the length of the run stands alone on its line, as in `500steps`
            help = f"write `for {budget[1]} {budget[2]}` in the first line, after the data"
            return location.error(codes.UNEXPECTED, f"a statement begins with a name, not with {location.shown}", help)
        return location.error(codes.UNEXPECTED, f"a statement begins with a name, not with {location.shown}")
    return location.error(codes.UNEXPECTED, f"unexpected {location.shown}", "a statement is `name = value` or a clause")


def _arguments_of_a_reference(location: ParserPosition, text: str) -> Diagnostic:
    """The error for settings of a source in parentheses, as in `me/rows(take=50%)` and `"rows.jsonl"(take=50%)`. They
    must be written in a block.
    """
    end = closing(text, location.span.start)
    message = "only a plain name takes arguments"
    if end is None or location.before is None:
        return location.error(codes.UNEXPECTED, message, IN_A_BLOCK)
    block = f"{location.word} {{ {text[location.span.end : end - 1].strip()} }}"
    edits = (Edit(location.span, " { "), Edit(Span(end - 1, end), " }"))
    return location.error(codes.UNEXPECTED, message, f"write `{block}`", edits=edits)


def _braces_put(text: str, met: Span, diagnostic: Diagnostic) -> Edit | None:
    """If `diagnostic` suggests a block `{ ... }` at the end of a clause's line, return a repair that writes it in place
    of the clause's parentheses. None if it suggests no block, or if the clause takes none.
    """
    if [edit.text for edit in diagnostic.edits] != [" { ", " }"]:
        return None
    start, stop = line_bounds(text, met.start, met.start)
    opened, closed = diagnostic.edits[0].span, diagnostic.edits[1].span
    if re.match(r"\s*(train|extends)\b", text[start:stop]) or re.search(r"[({\[]", text[start : opened.start]):
        return None
    if text[closed.end : stop].strip()[:1] not in ("", "#"):
        return None
    return Edit(Span(opened.start, closed.end), f"{{{text[opened.end : closed.start]}}}")


def _in_one_line_block(location: ParserPosition, text: str, opened: int) -> Diagnostic:
    """The error for a mistake inside of a one-line block, such as `batch { gbs = 528, micro = 11 }`. `opened` is the
    offset at which the outermost one-line block begins.
    """
    code, last, met = codes.ONE_LINE_BLOCK, location.last, location.met
    if met in ("_NL", END):
        return location.error(code, *ENDS_ON_ITS_LINE, edits=written_out(text, opened, len(location.source.text)))
    if met == "COMMA" and last in ("LBRACE", "COMMA"):
        remedy = "one comma between two settings"
        return location.error(code, "expected a setting before `,`", remedy, edits=(Edit(location.span, ""),))
    if met in ("NAME", "REF", "STRING", "NUMBER") and location.before and last in ("setting", "block", "RBRACE"):
        edits = (Edit(Span(location.before.end, location.before.end), ","),)
        remedy = f"write `{location.word}, {location.shown[1:-1]}`"
        return location.error(code, f"expected `,` or `}}`, found {location.shown}", remedy, edits=edits)
    if met == "LSQB" and (varied := notations.value_after_in(location, text)) is not None:
        return varied
    if met == "EQUAL":
        remedy = IN_A_BLOCK if last == "STRING" else notations.before_equals(location)
        return location.error(codes.UNEXPECTED, "`=` follows a plain name", remedy)
    if last == "setting" and met == "LBRACE":
        return location.error(codes.UNEXPECTED, "a setting takes no block", "a block follows its name without `=`")
    if last in ("LBRACE", "COMMA"):
        return location.error(
            code, f"expected a setting, found {location.shown}", "a block contains settings: `gbs = 528`"
        )
    return location.error(code, f"unexpected {location.shown}", "commas separate the settings of a block on one line")
