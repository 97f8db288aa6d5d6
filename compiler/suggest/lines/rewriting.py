"""Rewrite a text as a setting of a spec: put it into a spec and apply the suggested edits until it is legal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler.language.convert import convert
from xpc.compiler.language.expand import expand
from xpc.compiler.language.kinds import BLOCK
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.suggest.advisor import Suggestions
from xpc.compiler.suggest.legal import answer
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, applied
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Source

ROUNDS = 4
"""Edits are applied, and the result is checked again, at most this many times."""
TWICE = "keep one of the two"
"""The help for a clause that is written twice."""
HEADER, BODY = "train m on d with ", "xpc 1\ntrain m on d\n"


@record
class Rewritten:
    """A pasted option, rewritten as a setting: the text to type, and a help. The text is None if no setting corresponds
    to the option.
    """

    form: str | None
    help: str


def rewritten(typed: str, header: bool, method: str = "") -> Rewritten:
    """Rewrite a text as a setting of a spec's body or, with `header`, of its first line. `method` is the training
    method of the spec, if it names one.
    """
    named = f"{method} " if method else ""
    return rewritten_in(HEADER + named if header else body(method), typed)


def body(method: str) -> str:
    """The beginning of a spec with a training method, or without one."""
    return f"xpc 1\ntrain m on d with {method}\n" if method else BODY


def rewritten_in(before: str, typed: str) -> Rewritten:
    """Rewrite a text as a setting: put the text into a spec, after the text `before`, and apply the suggested edits to
    this spec until it is legal. If `before` opens blocks, the setting is one of the innermost block.
    """
    after = "\n" + "}\n" * before.count("{\n")
    text, first = _apply_advice(before + typed + after, len(before), len(after))
    if text is None and (plain := _without_method(before)) != before:
        alone = rewritten_in(plain, typed)
        if first.startswith(TWICE) or (alone.form or "").startswith("method"):
            return alone  # the text itself names the method
    if text is None:
        return Rewritten(None, first)
    form = text[len(before) : len(text) - len(after)]
    return Rewritten(form, f"write `{form}`")


def _without_method(before: str) -> str:
    if before.startswith(HEADER):
        return HEADER
    first, rest = before.removeprefix("xpc 1\n").partition("\n")[::2]
    return f"{BODY}{rest}" if first.startswith(HEADER) else before


def _apply_advice(text: str, start: int, rest: int) -> tuple[str | None, str]:
    """Apply the suggested edits to a part of a text until the part is legal. The part begins at the position `start`
    and ends `rest` characters before the end of the text. Returns a pair: the legal text, or None if the edits do not
    make it legal; and the help of the first finding.
    """
    first = ""
    for _ in range(ROUNDS):
        end = len(text) - rest
        found = [one for one in findings_of(text) if one.primary is None or start <= one.primary.span.start <= end]
        if not found:
            return text, first
        first = first or found[0].help or found[0].message
        edits = {one.span: one for finding in found for one in finding.edits}
        text = applied(text, edits.values())
        if not edits:
            break
    return None, first


def findings_of(text: str) -> list[Diagnostic]:
    """The errors of one kind in a spec. These are its syntax errors; if it has none, its errors about names; if it has
    none of these either, its errors about values.
    """
    file, found = parse(Source("pasted.xp", text))
    if found:
        name = text.splitlines()[-1].rpartition(" with ")[2].partition("=")[0]
        return [evolve(one, help=f"a setting is written `{name} = value`", edits=()) for one in found]
    written = expand(file, advisor=Suggestions)
    if written.problems:
        return [*written.problems]
    rows = ((BY_PATH[path], item) for path, item in written.items.items() if path in BY_PATH and path != "hardware")
    values = (convert(row, item) for row, item in rows if row.kind is not BLOCK)
    return [answer(one) for one in values if isinstance(one, InvalidValue)]


def findings_in(problems: Sequence[Diagnostic], source: Source, start: int, end: int) -> list[Diagnostic]:
    """The findings whose place begins between two positions of a source."""
    places = ((one, one.primary) for one in problems)
    return [one for one, at in places if at is not None and at.source is source and start <= at.span.start <= end]


def lines_with_errors(problems: Sequence[Diagnostic], longest: int = 400) -> Iterator[tuple[Source, int, int]]:
    """The first 60 lines with an error about syntax or names that are not longer than `longest`. Yields the source, and
    the positions where the line begins and ends.
    """
    seen: set[tuple[str, int]] = set()
    for one in problems:
        if one.primary is None or one.severity != ERROR or one.code[:3] not in ("XP0", "XP1") or len(seen) >= 60:
            continue
        source, at = one.primary.source, one.primary.span.start
        start, end = line_bounds(source.text, at, at)
        if (source.name, start) not in seen and end - start <= longest:
            seen.add((source.name, start))
            yield source, start, end


COMMENT = re.compile(r"(?<![^\s,{])#[ \t]*(?P<words>[^\s#][^\n]*)")
NOTE = re.compile(
    r"[ \t]+(?:#|//(?![ \t]*\d[\d.]*$)|--[ \t]|/\*).*$|(?<=[\w\"'%\]])[ \t]+\((?!per |each |in )[^()\d]*\)$"
)
"""A pattern for a comment (`# ours`, `// ours`) or a remark in parentheses at the end of a line. It does not match the
quotient `8 // 2`, and `(per gpu)`, which is more than a remark.
"""
REMARK = re.compile(r"(?<=[\w\"'%\]])[ \t]+\([^()=]*\)$")
"""A pattern for a remark that an edit may have left out: `32 (4 per GPU)`."""


def with_comments(found: Diagnostic) -> Diagnostic:
    """Keep the comments and remarks of a text that an edit replaces: after a line, and above several lines. A line that
    is left out goes with its comment.
    """
    if found.primary is None or not any(one.text.strip() for one in found.edits):
        return found
    text = found.primary.source.text
    made = "\n".join(one.text for one in found.edits)
    return evolve(found, edits=tuple(_with_comments(text, one, made) for one in found.edits))


def _with_comments(text: str, edit: Edit, made: str) -> Edit:
    removed, (start, end) = text[edit.span.start : edit.span.end], line_bounds(text, edit.span.start, edit.span.end)
    if not edit.text or (text[edit.span.end : end].lstrip(" \t")[:1] not in ("", "#")):
        return edit
    if "\n" in removed:
        plain, indent = re.sub(r"\"[^\"\n]*\"", "", removed), text[start : edit.span.start]
        above = [one[0] for one in COMMENT.finditer(plain) if not _has(made, one["words"])]
        return edit if indent.strip() else evolve(edit, text=f"\n{indent}".join((*above, edit.text)))
    note = (NOTE.search(removed) or REMARK.search(removed)) if removed.count('"') % 2 == 0 else None
    words = "" if note is None else re.sub(r"^[ \t]*(?:#|//|--|/\*|\()[ \t]*|[ \t]*(?:\*/|\))$", "", note[0])
    return edit if _has(made, words) else evolve(edit, text=f"{edit.text}  # {words}")


def _has(made: str, words: str) -> bool:
    """Whether the new text has a comment, or all words of a remark."""
    return f"# {words}" in made or all(re.search(rf"\b{re.escape(one)}\b", made) for one in re.findall(r"\w+", words))


def replaced(problems: Sequence[Diagnostic], old: Sequence[Diagnostic], new: Diagnostic) -> list[Diagnostic]:
    """Replace the first finding of `old` in `problems` by `new`, and remove the other findings of `old`."""
    return [new if one is old[0] else one for one in problems if one is old[0] or one not in old]
