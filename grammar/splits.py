"""Recognize splits and parts of splits in the notation of other tools: `name[:20%]`, `name train[:20%]`."""

from __future__ import annotations

import re

from xpc.grammar import codes
from xpc.grammar.checks import WORDS
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.source import Source, Span

_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]*(:[A-Za-z0-9_.\-]+)?")
_WORD = r"[A-Za-z0-9_.\-]"
_PART = rf"((?:{_WORD}|%)*+)"
_BRACKETS = re.compile(rf'\[\s*+"?+\s*+{_PART}\s*+(?:\[\s*+)?+(:?+)\s*+{_PART}\s*+(?:\]\s*+)?"?+\s*+\]')
"""A pattern for the brackets after a dataset's name, such as `[train:20%]`. The possessive quantifiers (`*+`) keep the
search fast even if a thousand spaces follow a bracket.
"""
_AFTER = re.compile(rf"[ \t]+({_WORD}+)(?:\[\s*:|:)\s*((?:{_WORD}|%)+)\s*\]?(?=\s|$)")
_TWO_WORDS = re.compile(rf"(?<![\w.\-/:])({_REF.pattern})[ \t]+{_WORD}+\Z".replace("(:", "(?::"))
_SETTING = re.compile(rf"\bsplit[ \t]*=[ \t]*{_WORD}+\Z")
_OTHER = re.compile(r"\[[^\[\]\n]*+(?:\[[^\[\]\n]*+\][^\[\]\n]*+)?\]")
SPLITS = ("train", "test", "validation", "val", "dev", "eval")
_FORM = "to take the first rows of a split, write `[train:20%]` or `[train:1000]` directly after the dataset"

_FILE = 'a local file is one split: a row `"rows.jsonl" { take = 20% }` of a `data` block takes a part of it'


def misspelt(source: Source, text: str, before: Span | None, at: int, in_sentence: bool = False) -> Diagnostic | None:
    """The error for a dataset followed by brackets or by the name of a split, such as `on capybara train`. None if the
    text has another error.

    `before` is the span of the dataset's name, and `at` the offset of the text after the name. `in_sentence` is true in
    the first line of a spec.
    """
    if before is None:
        return None
    dataset, bracketed = text[before.start : before.end], text[at] == "["
    if dataset.startswith('"') and _BRACKETS.match(text, at):
        return _finding(source, Span(at, at + 1), _FILE, ())
    line = text.rfind("\n", 0, at) + 1
    following = _TWO_WORDS.search(text, line, before.end) if bracketed and dataset in SPLITS else None
    if following is not None and following[1] not in WORDS:
        before, at, bracketed, dataset = Span(*following.span(1)), before.start, False, following[1]
    if dataset == "train" and bracketed:  # a part of a split has no dataset before it, as in `on train[:20%]`
        return _finding(source, Span(before.start, at + 1), _FORM, ())
    if dataset in WORDS or not _REF.fullmatch(dataset):
        return None
    match = _BRACKETS.match(text, at) if bracketed else _AFTER.match(text, before.end)
    if match is None:
        other = _OTHER.match(text, at) if bracketed and before.end == at else None
        return None if other is None or '"' in other[0] else _finding(source, Span(at, other.end()), _FORM, ())
    if bracketed:
        split, colon, part = match.groups()
        if "%" in split:
            if colon or part:
                return None
            split, part = "", split
        elif not split and not colon and "%" not in part:
            split, part = part, ""
        if before.end < at and not (colon or "%" in part or in_sentence):
            return None
    else:
        (split, part), colon = match.groups(), ":"
    name, _, config = dataset.partition(":")
    if not split and config in SPLITS:
        dataset, split = name, config
    form = f"{dataset}[{split or 'train'}{':' if part else ''}{part}]"
    return _finding(source, Span(at, match.end()), f"write `{form}`", (Edit(Span(before.start, match.end()), form),))


def in_setting(source: Source, text: str, before: Span | None, at: int) -> Diagnostic | None:
    """The error for a setting whose value contains a part of a split, such as `split = test[:20%]`, or None."""
    if (
        before is None
        or not _SETTING.search(text, max(0, before.start - 40), before.end)
        or not _BRACKETS.match(text, at)
    ):
        return None
    remedy = f"write `split = {text[before.start : before.end]}`: a setting names a whole split"
    return _finding(source, Span(at, at + 1), remedy, ())


def _finding(source: Source, span: Span, remedy: str, edits: tuple[Edit, ...]) -> Diagnostic:
    code = codes.SPLIT_SPELLING
    message = "a split is written in brackets after its dataset, and a part of it after a colon"
    return Diagnostic(code.code, code.slug, ERROR, message, Label(source, span), help=remedy, edits=edits)
