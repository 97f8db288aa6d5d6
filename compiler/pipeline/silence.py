"""Silence findings by a comment: `# xpc: allow XP712 reason`. This module is imported only for a spec that contains
`xpc:`.

The comment names one or more codes. It silences the warnings and notes with these codes on its own line or, if the line
contains only the comment, on the next line. If the silenced line opens or closes a bracket, the comment applies to
everything in the bracket. The reason is required. Errors, and findings that a reviewer must see, cannot be silenced. A
comment that silences nothing is itself a finding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from xpc.compiler import rules
from xpc.compiler.language.codes import CODES, report
from xpc.grammar.codes import CODES as SYNTAX
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label, Silenced
from xpc.grammar.nearest import nearest
from xpc.grammar.record import entity, field
from xpc.grammar.scan import line_bounds, scan
from xpc.grammar.source import Span
from xpc.grammar.tree import Comment, File

MARK = "xpc:"
WORD = "allow"
OTHERS = ("ignore", "disable", "silence", "suppress", "noqa", "nolint", "skip", "off", "deny", "expect", "permit")
"""Words that comments of other tools have where xpc's comments have `allow`."""
REVIEWED = ("XP590", "XP701")
"""Codes of findings that no comment can silence, because a reviewer of a stranger's spec must see them: the spec runs
code from a branch that can move, or copies files of a hidden folder. With `--deny warnings`, they make the check fail.
"""
GUESSED = 40
"""The largest number of unknown codes for which a known code is suggested. Each suggestion takes milliseconds, and a
file may contain thousands of unknown codes.
"""
EXAMPLE = "# xpc: allow XP410 the reason"


@entity
class Silence:
    """A comment that silences findings: its `codes`, each with its span, and the range of offsets to which it
    applies.
    """

    label: Label
    codes: dict[str, Span]
    reason: str
    start: int
    end: int
    main: bool
    used: set[str] = field(factory=set)


def apply(files: Sequence[File], found: Sequence[Diagnostic]) -> tuple[list[Diagnostic], tuple[Silenced, ...]]:
    """Return two lists. The first has the remaining findings and findings about wrong comments. The second has the
    silenced findings.

    `files` is the spec followed by the specs that it extends.
    """
    codes = tuple(dict.fromkeys(each.code for each in found))
    silences: list[Silence] = []
    problems: list[Diagnostic] = []
    for file in files:
        if MARK in file.source.text:
            for one in _silences(file, file is files[0], codes):
                (problems if isinstance(one, Diagnostic) else silences).append(one)  # type: ignore[arg-type]
    left: list[Diagnostic] = []
    silenced: list[Silenced] = []
    for finding, holding in zip(found, _holding(silences, found), strict=True):
        for one in holding:
            one.used.add(finding.code)
        if holding and finding.severity != ERROR and finding.code not in REVIEWED:
            silenced.append(Silenced(finding, holding[0].label, holding[0].reason))
            continue
        left.append(finding)
        problems += [_of_an_error(one, finding) for one in holding]
    # an error may hide the finding for which the comment was written
    if not any(one.severity == ERROR for one in found):
        problems += [_unused(one, code) for one in silences if one.main for code in one.codes if code not in one.used]
    return [*left, *problems], tuple(silenced)


def _holding(silences: Sequence[Silence], found: Sequence[Diagnostic]) -> list[list[Silence]]:
    """Return for each finding the comments that silence it, in the order of the text. Findings and comments with the
    same code are sorted and compared in one pass, because comparing each finding with each comment would take too long.
    """
    groups: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for number, one in enumerate(silences):
        for code in one.codes:
            groups.setdefault((id(one.label.source), code), []).append((one.start, number))
    locations: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for number, finding in enumerate(found):
        at = finding.primary
        if at is not None and (id(at.source), finding.code) in groups:
            locations.setdefault((id(at.source), finding.code), []).append((at.span.start, number))
    out: list[list[Silence]] = [[] for _ in found]
    for key, wanted in locations.items():
        begun, active = sorted(groups[key], reverse=True), list[int]()
        for offset, number in sorted(wanted):
            while begun and begun[-1][0] <= offset:
                active.append(begun.pop()[1])
            active = [one for one in active if silences[one].end >= offset]
            out[number] = [silences[one] for one in sorted(active)]
    return out


def _of_an_error(silence: Silence, finding: Diagnostic) -> Diagnostic:
    if finding.severity != ERROR:
        return report(
            "XP901",
            f"{finding.code} is meant for the reviewer of the spec, so a comment in the spec cannot silence it",
            Label(silence.label.source, silence.codes[finding.code]),
            help="do what the warning says, and delete this comment",
        )
    return report(
        "XP901",
        f"{finding.code} is an error, and a comment cannot silence errors",
        Label(silence.label.source, silence.codes[finding.code]),
        related=() if finding.primary is None else (Label(finding.primary.source, finding.primary.span, "the error"),),
        help="correct what the error names, and delete this comment",
    )


def _unused(silence: Silence, code: str) -> Diagnostic:
    whole = len(silence.codes) == 1
    span = silence.label.span if whole else silence.codes[code]
    return report(
        "XP901",
        f"no {code} was found on these lines",
        Label(silence.label.source, span),
        help="delete the comment" if whole else f"delete `{code}` from the list",
        edits=(_removed(silence.label) if whole else _without(silence, code),),
    )


def _removed(label: Label) -> Edit:
    """The edit that deletes a comment, together with the spaces before it."""
    start = len(label.source.text[: label.span.start].rstrip(" \t"))
    return Edit(Span(start, label.span.end), "")


def _without(silence: Silence, code: str) -> Edit:
    """The edit that deletes one code, together with the separator next to it, from a comment with several codes."""
    spans = list(silence.codes.values())
    at = spans.index(silence.codes[code])
    if at + 1 < len(spans):
        return Edit(Span(spans[at].start, spans[at + 1].start), "")
    return Edit(Span(spans[at - 1].end, spans[at].end), "")


def _silences(file: File, main: bool, given: Sequence[str]) -> Iterator[Silence | Diagnostic]:
    """Yield the correct comments of a file, and a finding for each malformed comment. `given` are the codes of the
    findings in the spec.
    """
    lines: _Lines | None = None
    strange: set[str] = set()
    for comment in file.comments:
        start = _begin(comment)
        if start is None:
            continue
        span = Span(start, comment.span.start + len(comment.text.rstrip()))
        output = _read(file, span)
        if output is None:
            continue
        if isinstance(output, Diagnostic):
            yield output
            continue
        codes, reason = output
        for code in [one for one in codes if not _is_known(one, given)]:
            strange.add(code)
            yield _unknown(file, code, codes.pop(code), given, len(strange) <= GUESSED)
        if codes:
            lines = lines or _Lines(file)
            yield Silence(Label(file.source, span), codes, reason, *lines.range(comment), main)


def _begin(comment: Comment) -> int | None:
    """The offset of `# xpc:` in a comment. Other words may stand before it. None if the comment has no `# xpc:`."""
    text = comment.text
    at = text.find("#")
    while at >= 0:
        if text[at + 1 :].lstrip().startswith(MARK):
            return comment.span.start + at
        at = text.find("#", at + 1)
    return None


def _words(text: str, offset: int) -> list[tuple[str, Span]]:
    """The words of a text, separated by spaces, commas and colons, each with its span."""
    out: list[tuple[str, Span]] = []
    at = 0
    for word in text.replace(",", " ").replace(":", " ").split():
        at = text.index(word, at)
        out.append((word, Span(offset + at, offset + at + len(word))))
        at += len(word)
    return out


def _read(file: File, span: Span) -> tuple[dict[str, Span], str] | Diagnostic | None:
    """Parse a comment. Returns its codes and its reason, or a finding if the comment is malformed, or None if no word
    follows `xpc:`.
    """
    text = file.source.text
    after = text.index(MARK, span.start) + len(MARK)
    words = _words(text[after : span.end], after)
    if not words:
        return None
    if words[0][0].lower() != WORD:
        return _misspelt(file, *words[0])
    codes: dict[str, Span] = {}
    rest = words[1:]
    while rest and _is_code(rest[0][0]):
        codes.setdefault(rest[0][0].upper(), rest[0][1])
        rest = rest[1:]
    reason = text[rest[0][1].start : span.end].lstrip(":-– ") if rest else ""
    if not codes:
        return report("XP902", "the comment names no code", Label(file.source, span), help=f"write it as `{EXAMPLE}`")
    if not any(each.isalnum() for each in reason):
        written = " ".join(text[span.start : span.end].rstrip(":-– ,").split())
        return report(
            "XP902",
            "the comment gives no reason",
            Label(file.source, span, "`xpc: allow` needs a reason"),
            help=f"say why: `{written} the reason`",
        )
    return codes, reason


def _is_code(word: str) -> bool:
    """Whether a word looks like a code: XP and at least one digit."""
    return word[:2].upper() == "XP" and any(each.isdecimal() for each in word)


def _misspelt(file: File, word: str, span: Span) -> Diagnostic | None:
    if word.lower() not in OTHERS and nearest(word, (WORD,)) is None:
        return None
    return report(
        "XP902",
        f"`{word[:60]}` is not a silence",
        Label(file.source, span),
        help=f"write `{WORD}`",
        edits=(Edit(span, WORD),),
    )


@lru_cache
def _likelier(code: str, given: tuple[str, ...]) -> str | None:
    """The known code that is most similar to an unknown one. If several are equally similar, a code that the spec's
    findings have is preferred. Codes of syntax errors are never suggested, because errors cannot be silenced.
    """
    return nearest(code, [*given, *sorted(each for each in _every_code() if each >= "XP1")])


def _is_known(code: str, given: Sequence[str]) -> bool:
    return code in given or code in _every_code()


@cache
def _every_code() -> frozenset[str]:
    """All codes of findings."""
    return frozenset((*CODES, *SYNTAX, *rules.codes()))


def _unknown(file: File, code: str, span: Span, given: Sequence[str], guess: bool) -> Diagnostic:
    near = _likelier(code, tuple(given)) if guess else None
    return report(
        "XP902",
        f"there is no code `{code[:60]}`",
        Label(file.source, span, f"did you mean `{near}`?" if near else ""),
        help=f"write `{near}`" if near else f"write it as `{EXAMPLE}`",
        edits=(Edit(span, near),) if near else (),
    )


class _Lines:
    """The lines and brackets of a file. They are computed once, for all comments."""

    def __init__(self, file: File) -> None:
        pairs = list(scan(file.source).pairs)
        self.text = file.source.text
        self.opened = sorted(pairs)
        self.closed = sorted((closed, opened) for opened, closed in pairs)
        self.below: dict[int, tuple[int, int]] = {}

    def range(self, comment: Comment) -> tuple[int, int]:
        """The offsets between which a comment silences findings: the first and the last character of the lines to which
        it applies.
        """
        text = self.text
        start, end = line_bounds(text, comment.span.start, comment.span.start)
        first = start
        if not text[start : comment.span.start].strip():  # a comment that stands alone applies to the next line
            start, end = self._code_line(start, end)
            if text[start:end].lstrip()[:1] in ("}", "]", ")"):
                # the comment is the last line of its block, so it applies to no line
                return first, line_bounds(text, first, first)[1]
        else:
            first = min([opened for _, opened in _between(self.closed, start, end)], default=start)
            first = line_bounds(text, min(first, start), min(first, start))[0]
        return first, max([closed for _, closed in _between(self.opened, start, end)], default=end)

    def _code_line(self, start: int, end: int) -> tuple[int, int]:
        """The bounds of the first line with code at or after the line that begins at `start`. If there is none, the
        bounds of the last line.
        """
        passed = []
        while start not in self.below and end < len(self.text) and _is_idle(self.text[start:end]):
            passed.append(start)
            start, end = line_bounds(self.text, end + 1, end + 1)
        found = self.below.get(start, (start, end))
        self.below.update(dict.fromkeys(passed, found))
        return found


def _between(pairs: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The pairs whose first number lies between the offsets `start` and `end`, both included. `pairs` must be
    sorted.
    """
    return pairs[bisect_left(pairs, (start, -1)) : bisect_left(pairs, (end + 1, -1))]


def _is_idle(line: str) -> bool:
    stripped = line.strip()
    return not stripped or stripped.startswith("#")
