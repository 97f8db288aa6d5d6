"""Report characters of other notations: `:=` and `=>`, `;` and `//`, variables, URLs, and a `:` or `@` without a name
after it.
"""

from __future__ import annotations

import re

from xpc.grammar import codes
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.parser_position import ParserPosition
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

MARK = re.compile(r":=|->|<-|>(?=\s*\S)")
"""A pattern for signs that stand between a name and its value in other notations. Of `=>`, it matches only the `>`,
because the parser has already read the `=`.
"""
IN_A_LINE = "choices and settings are separated by spaces"
URL = re.compile(
    r"(?:(?:https?://(?:www\.)?(?:huggingface\.co|hf\.co)/|hf://)(?:datasets/|models/)?(?P<name>[\w.-]+/[\w.-]+)\S*"
    r"|\b[a-z][a-z0-9]*://\S*)"
)
VARIABLE = re.compile(r"\$[\w{(]|%[A-Za-z_]+%|`")
PINNED = re.compile(r"\btarget[ \t]+(?P<pin>(?P<package>[a-z]+)[ \t]*(?:==|>=|~=|<=)[ \t]*(?P<version>[\d.]+))")
WEIGHT = re.compile(r"[ \t]{0,8}[:*][ \t]{0,8}(?P<weight>\d{1,9}(?:\.\d{1,9})?)(?=[ \t]{0,8}[,\]])")
"""A pattern for the weight of an item in a list, in another notation: `accuracy: 1`, `accuracy * 0.5`."""
COMMENT = re.compile(r"//(?=/|[ \t]*(?:[A-Za-z]|$))|/\*(?P<text>[^*\n]*)\*/(?=[ \t]*$)", re.M)
"""A pattern for a comment of C, `// tuned` or `/* tuned */`. In `64 // 8`, the sign divides."""
COLON = re.compile(r"\"[^\"\n]*\"|#[^\n]*|(?<![\w.-])[A-Za-z_]\w*(?P<colon>[ \t]*:)(?=[ \t]*[^\s:,}\])])")
"""A pattern for the colon after a name, as in `gbs: 64`. It also matches strings and comments, so that a colon in them
is skipped.
"""
PART = re.compile(r"[:@][\w.\-]+")
"""A pattern for the configuration (`:NAME`) or the revision (`@NAME`) after the name of a dataset or a model."""


def of_another_notation(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for an illegal character of another known notation, such as `:=` or `$NAME`. None for any other
    character.
    """
    code, character, at = codes.UNEXPECTED_CHARACTER, location.shown, location.span.start
    other = _comment(location, text) if character == "/" else _semicolon(location, text) if character == ";" else None
    if other is not None:
        return other
    mark = MARK.match(text, at)
    joins = location.before and re.fullmatch("=" if mark and mark[0] == ">" else r"\"?[A-Za-z_].*", location.word)
    if mark is not None and joins:
        half = mark[0] == ">"  # of `=>`, only the `>` is left, because the parser has already read the `=`
        remedy = "write `=` alone" if half else f"write `{location.word} =`"
        edits = (Edit(Span(at, mark.end()), "" if half else "="),)
        return location.error(code, f"unexpected `{mark[0]}`", remedy, edits=edits)
    if pinned_target(text, at) is not None:
        return location.error(code, "a target is one word", "write one version, as in `target trl-1.16`")
    if VARIABLE.match(text, at):
        remedy = "a spec has no variables, and reads no environment: write the value itself"
        return location.error(code, f"unexpected `{character}`", remedy)
    url = URL.search(text, *line_bounds(text, at, at)) if character == ":" else None
    if url is not None and url.start() < at < url.end():
        named = (Edit(Span(*url.span()), url["name"]),) if url["name"] else ()
        remedy = f"write `{url['name']}`" if url["name"] else "data and models come from the hub or from this machine"
        return location.error(code, "an address is not a name", remedy, edits=named)
    return _reference(location, text) if character in ":@" and location.before is not None else None


def _comment(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for a comment in the notation of C. None for any other `/`."""
    found = COMMENT.match(text, location.span.start)
    if found is None:
        double = text.startswith("//", location.span.start)
        code = codes.UNEXPECTED_CHARACTER
        return location.error(code, "unexpected `//`", "comments begin with `#`") if double else None
    form = "#" if found["text"] is None else f"# {found['text'].strip()}"
    edits = (Edit(Span(*found.span()), form),)
    message = f"unexpected `{found[0][:2]}`"
    return location.error(codes.UNEXPECTED_CHARACTER, message, "comments begin with `#`", edits=edits)


def comma(location: ParserPosition, text: str) -> Diagnostic:
    """The error for a comma after a statement, outside of brackets and of one-line blocks."""
    start, end = line_bounds(text, location.span.start, location.span.start)
    ends = text[location.span.end : end].strip()[:1] in ("", "#")
    inside = any(item.kind == "LBRACE" for item in location.stack)
    if inside and not ends and re.fullmatch(r"\s*[\w./\-]+", text[start : location.span.start]):
        edits = (Edit(location.span, "\n"),)  # the line lists sources of a `data` block, as in `alpaca, dolly-15k`
        remedy = "write each of them on a line of its own"
        return location.error(codes.UNEXPECTED, "unexpected `,`", remedy, edits=edits)
    if not ends and not re.match(r"\s*[\w.\-]+\s*=", text[start : location.span.start]):
        spaces = _spaces(location, text, ",")
        return location.error(codes.UNEXPECTED, "unexpected `,`", IN_A_LINE, edits=spaces)
    remedy = "settings on their own lines take no commas; a block on one line does: `batch { gbs = 528, micro = 11 }`"
    before, after = text[start : location.span.start], text[location.span.end : end]
    # in `loss = sigmoid, ipo`, the word after the comma belongs to the value
    listed = re.search(r"=\s*[A-Za-z][\w.\-]*\s*$", before) and not re.match(r"\s*[\w.\-]+\s*[={(]", after)
    edit = Edit(location.span, "" if ends else "\n")
    return location.error(codes.UNEXPECTED, "unexpected `,`", remedy, edits=() if listed and not ends else (edit,))


def _spaces(location: ParserPosition, text: str, sign: str) -> tuple[Edit, ...]:
    """The edits that replace each sign between the settings of a clause by a space, as in `lora rank=16, alpha=32`.
    Empty if the rest of the line has the sign in another place, too.
    """
    at, end = location.span.start, line_bounds(text, location.span.start, location.span.start)[1]
    between = [*re.finditer(rf"{sign}(?=(\s*)[\w.\-]+\s*=)", text[at:end])]
    edits = tuple(Edit(Span(at + one.start(), at + one.end()), "" if one[1] else " ") for one in between)
    return edits if text.count(sign, at, end) == len(edits) else ()


def _semicolon(location: ParserPosition, text: str) -> Diagnostic:
    """The error for a `;` after a setting. In a block on one line, it stands for a comma."""
    code, message, at = codes.UNEXPECTED_CHARACTER, "unexpected `;`", location.span.start
    start = line_bounds(text, at, at)[0]
    if location.one_line is not None or text.count("(", start, at) > text.count(")", start, at):
        remedy = "commas separate the settings of a block on one line"
        return location.error(code, message, remedy, edits=(Edit(location.span, ","),))
    _, end = line_bounds(text, at, at)
    rest = text[at + 1 : end]
    if rest.strip()[:1] in ("", "#"):
        remedy = "leave the `;` out: a setting ends with its line"
        return location.error(code, message, remedy, edits=(Edit(location.span, ""),))
    clause = re.match(r"\s*[\w.\-]+\s+[\w.\-\"]", text[start:at])
    if clause and (spaces := _spaces(location, text, ";")):
        return location.error(code, message, IN_A_LINE, edits=spaces)
    edits = (Edit(Span(at, end - len(rest.lstrip())), "\n"),)
    return location.error(code, message, "write each setting on its own line", edits=edits)


def colon(location: ParserPosition, text: str) -> Diagnostic:
    """The error for a `:` directly after a name."""
    if location.word == "xpc":
        message = "the edition of the language follows `xpc` without a colon"
        return location.error(codes.UNKNOWN_EDITION, message, "write `xpc 1`", edits=edition(location, text))
    if location.word == "train" and (line := re.match(r":[ \t]*(\S.*)", text[location.span.start :])):
        remedy = f"write `train {line[1].strip()[:100]}`, without a colon"
        return location.error(codes.UNEXPECTED_CHARACTER, "unexpected `:`", remedy, edits=(Edit(location.span, ""),))
    name = location.word.strip('"')
    remedy = _block_of_yaml(text, location.span.start) or f"a setting is written `{name} = value`"
    return location.error(codes.UNEXPECTED_CHARACTER, "unexpected `:`", remedy, edits=_colons(location, text))


def edition(location: ParserPosition, text: str) -> tuple[Edit, ...]:
    """The edit for the edition with a sign before its number: `xpc: 1` and `xpc = 1` become `xpc 1`. Empty for any
    other line.
    """
    start, end = line_bounds(text, location.span.start, location.span.start)
    found = re.compile(r"[ \t]*xpc(?P<sign>[ \t]*[:=][ \t]*)\d+[ \t]*").fullmatch(text, start, end)
    return () if found is None else (Edit(Span(*found.span("sign")), " "),)


def _colons(location: ParserPosition, text: str) -> tuple[Edit, ...]:
    """The edits that write `=` for the colons between names and values in a call, or in a block on one line: `batch {
    gbs: 64, micro: 2 }`. Empty outside of brackets.
    """
    opened = next((item.start for item in location.stack if item.kind == "LPAR"), location.one_line)
    if opened is None or any(item.kind == "TRAIN" for item in location.stack):
        return ()
    _, end = line_bounds(text, location.span.start, location.span.start)
    found = [one for one in COLON.finditer(text, opened, end) if one["colon"] is not None]
    return tuple(Edit(Span(*one.span("colon")), " =") for one in found)


def brackets(location: ParserPosition, text: str) -> tuple[Edit, ...]:
    """The edits that write a tuple or set of Python as a list: `betas = (0.9, 0.95)`, `lora(targets={q_proj})`.
    Empty for other parentheses and braces.
    """
    at = location.span.start
    _, end = line_bounds(text, at, at)
    in_a_call = any(item.kind == "LPAR" for item in location.stack)  # elsewhere, `{q_proj, v_proj}` may be a block
    items = r"[^(){}\[\]\n=:]*\}" if in_a_call else r"[ \t]*[\d.\"][^(){}\[\]\n=:]*\}"
    found = re.compile(rf"\([^()\[\]\n=]*\)|\{{{items}").match(text, at, end)
    return () if found is None else (Edit(Span(at, at + 1), "["), Edit(Span(found.end() - 1, found.end()), "]"))


def before_equals(location: ParserPosition) -> str:
    """The help for a `=` after something that is not a plain name: `lora@rank = 8`."""
    block, at, inner = location.word.partition("@")
    return f"write `{block}({inner}=...)`" if at and block.isalpha() and inner else "write `name = value`"


def brace_below(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for a `{` on the line below the block's name. None for a `{` without such a name."""
    start, _ = line_bounds(text, location.span.start, location.span.start)
    above = re.search(
        r"(?:^|\n)[ \t]*(?!train\b)(?P<head>[\"A-Za-z][^\n={}#]*?)[ \t]*\n[ \t]*\Z",
        text[max(0, start - 200) : location.span.start],
    )
    if above is None:
        return None
    edits = (Edit(Span(max(0, start - 200) + above.end("head"), location.span.start), " "),)
    message = "the `{` of a block stands on the line of the block's name"
    return location.error(codes.UNEXPECTED, message, f"write `{above['head']} {{`", edits=edits)


def _reference(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for a `:` or `@` in the first line that has a space before it, or no name after it."""
    code, mark, before, at = codes.UNEXPECTED_CHARACTER, location.shown, location.before, location.span.start
    kinds = {item.kind for item in location.stack}
    if before is None or "TRAIN" not in kinds or {"FOR", "WITH"} & kinds:
        return None
    part = PART.match(text, at)
    if before.end < at:
        edits = (Edit(Span(before.end, at), ""),)
        remedy = f"write `{location.word}{part[0]}`" if part is not None else ""
        return location.error(code, f"unexpected `{mark}`", remedy, edits=edits) if remedy else None
    if mark in location.word:
        return location.error(code, f"unexpected `{mark}`", f"a name has one `{mark}`: `{location.word}`")
    what = "a configuration's name" if mark == ":" else "a branch, a tag or a commit"
    remedy = f"write {what} directly after `{location.word}{mark}`, or leave the `{mark}` out"
    return location.error(code, f"unexpected `{mark}`", remedy, edits=(Edit(location.span, ""),))


def _block_of_yaml(text: str, at: int) -> str:
    """The help for a `:` at the end of a line, which begins a block in YAML: `optimizer adamw:`. "" for any other
    `:`.
    """
    start, end = line_bounds(text, at, at)
    head, after = text[start:at].strip(), text[at + 1 : end].partition("#")[0].strip()
    return "" if after or '"' in head else f"a block is written `{head} {{`, and ends with a line `}}`"


def pinned_target(text: str, at: int) -> Edit | None:
    """The edit for a target that is written as in a file of requirements: `target trl==1.16` becomes
    `target trl-1.16`. None for any other line.
    """
    found = PINNED.search(text, *line_bounds(text, at, at))
    version = "" if found is None else re.sub(r"^(\d+\.\d+)\.0$", r"\1", found["version"])
    return None if found is None else Edit(Span(*found.span("pin")), f"{found['package']}-{version}")


def value_after_in(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for a list after a name and a word such as `in`: `lr in [1e-5, 2e-5]`. None for any other list."""
    start, _ = line_bounds(text, location.span.start, location.span.start)
    before = re.search(r"(?<!\w)([A-Za-z_]\w*)[ \t]+(?:in|to|is|of)[ \t]*$", text[start : location.span.start])
    if before is None:
        return None
    edits = (Edit(Span(start + before.end(1), location.span.start), " = "),)
    message, remedy = "a list can only be the value of a setting", f"write `{before[1]} = [...]`"
    return location.error(codes.UNEXPECTED, message, remedy, edits=edits)


def weight_after(location: ParserPosition, text: str) -> Diagnostic | None:
    """The error for an item of a list with its weight in another notation: `[accuracy: 1]`, `[accuracy * 0.5]`. None
    for any other character.
    """
    before = location.before
    found = None if before is None else WEIGHT.match(text, before.end)
    if found is None or before is None or not any(item.kind == "LSQB" for item in location.stack):
        return None
    form = f"(weight={found['weight']})"
    _, end = line_bounds(text, before.end, before.end)
    end = min(end, (text + "]").find("]", before.end) + 1)
    edits = tuple(
        Edit(Span(*one.span()), f"(weight={one['weight']})") for one in WEIGHT.finditer(text, before.end, end)
    )
    help = f"write `{location.word}{form}`, the item with its weight"
    return location.error(codes.UNEXPECTED_CHARACTER, f"unexpected `{location.shown}`", help, edits=edits)
