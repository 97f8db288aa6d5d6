"""Rewrite a first line (`train M on D ...`) whose settings are written in words: `train M on D with a learning rate of
2e-5` becomes `train M on D with lr=2e-5`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language.expand import expand
from xpc.compiler.suggest.lines.marks import settled
from xpc.compiler.suggest.lines.phrases import phrases
from xpc.compiler.suggest.lines.rewriting import findings_in, findings_of, replaced
from xpc.compiler.suggest.sentence import method_of
from xpc.grammar.checks import VERBS
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label, applied
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Source, Span

HEAD = re.compile(rf"(?P<verb>(?:[A-Za-z',]+[ \t]+){{0,6}}?(?:{'|'.join(VERBS)}))[ \t]+(?P<model>[^\s,]+)[ \t]+on[ \t]+"
                  r"(?!(?:with|for|on|extends)\b)(?P<data>\"[^\"\n]*\"|[^\s,]+),?(?P<rest>[ \t].*)")  # fmt: skip
DASHES = re.compile(r"(?<!\S)--?(?=[A-Za-z])")
IN_CLAUSE = re.compile(r"(?<!\S)([a-z]+)[@:/>](?=[a-z_]+=)")
"""A pattern for a clause before its setting, with another sign than a dot: `lora@rank=8`."""
SPLIT = re.compile(r"(?<!\S)(?:with[ \t]+)?split[ \t]*=?[ \t]*([A-Za-z]\w*)(?!\S)")
LONGEST_LINE = 600
LONGEST = 200
"""A help shows at most this many characters of the corrected first line."""


def rewrite_header(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """If the first line has settings in English words, replace all findings about it by one about the complete line."""
    out = list(problems)
    for one in problems:
        if one.primary is None or one.severity != ERROR or one.code[:3] not in ("XP0", "XP1"):
            continue
        source, at = one.primary.source, one.primary.span.start
        start, end = line_bounds(source.text, at, at)
        if end - start > LONGEST_LINE or not {*VERBS}.intersection(source.text[start:end].split()[:7]):
            continue
        inside = findings_in(out, source, start, end)
        text = source.text[start:end]
        rewrite = None if any(map(_has_a_choice, inside)) else _form(text)
        if rewrite is not None and rewrite.unclear and "," not in text:
            break  # keep the findings: there is one for each unclear word
        form = "" if rewrite is None else rewrite.sentence(text)
        if (
            form in ("", text)
            or parse(Source("line.xp", f"{form}\n"))[1]
            or _says_the_same(inside, source, Span(start, end), form)
        ):
            break  # keep the findings about single words, because they are more exact
        if inside and rewrite is not None:
            out = replaced(out, inside, _made(inside[0], source, Span(start, end), rewrite))
        break
    return out


@record
class _Rewrite:
    """The part of a first line after its data, rewritten. `verb` and `data` are the columns at which the verb and the
    data end, `text` is what to write after the data, and `comment` is the comment of the line. `unclear` are the helps
    for names that may mean several settings.
    """

    verb: int
    data: int
    text: str
    comment: str
    unclear: tuple[str, ...]

    def sentence(self, line: str) -> str:
        """The rewritten line without its comment. It begins with `train`, even if the user wrote another verb."""
        return f"train{line[self.verb : self.data]}{self.text}"


def with_settings(line: str) -> str | None:
    """A first line with its settings in xpc's notation. None if some words are not understood, or may mean several
    settings.
    """
    rewrite = _form(line)
    return None if rewrite is None or rewrite.unclear else rewrite.sentence(line) + rewrite.comment


def _has_a_choice(found: Diagnostic) -> bool:
    """Whether a word may belong to two clauses, so that the user must choose: `micro=8` after `eval split=test` may
    belong to `eval` or to `batch`.
    """
    return found.code == "XP104" and "`, or `" in (found.help or "")


def _says_the_same(inside: Sequence[Diagnostic], source: Source, line: Span, form: str) -> bool:
    """Whether the edits of the findings already make the first line legal, with the same settings as `form`."""
    edits = [
        Edit(Span(e.span.start - line.start, e.span.end - line.start), e.text) for one in inside for e in one.edits
    ]
    if not settled(inside, source, line.start, line.end) or any(edit.span.start < 0 for edit in edits):
        return False
    return _settings(applied(source.text[line.start : line.end], edits)) == _settings(form)


def _settings(text: str) -> list[tuple[str, str]]:
    source = Source("line.xp", f"{text}\n")
    items = expand(parse(source)[0]).items
    return sorted((path, "" if one.node is None else source.slice(one.node.span)) for path, one in items.items())


def _made(found: Diagnostic, source: Source, span: Span, rewrite: _Rewrite) -> Diagnostic:
    message = "choices and settings go after `with`, and values follow `=`"
    line = source.text[span.start : span.end]
    verb = Span(span.start, span.start + rewrite.verb)
    first = () if line[: rewrite.verb] == "train" else (Edit(verb, "train"),)
    edits = (*first, Edit(Span(span.start + rewrite.data, span.end), rewrite.text + rewrite.comment))
    help = "; ".join((f"write `{rewrite.sentence(line)[:LONGEST]}`", *rewrite.unclear))
    edits = () if rewrite.unclear else edits
    return evolve(found, message=message, primary=Label(source, span), help=help, edits=edits)


def _form(line: str) -> _Rewrite | None:
    """Rewrite the part of a first line after its data. None if some words are not understood."""
    text, _, comment = line.partition(" #")
    text = re.sub(r"[ \t]\(([^()]*)\)$", r" \1", text.rstrip(" \t.;,?!"))  # `(2 epochs)`
    head = HEAD.fullmatch(text)
    rest = "" if head is None else re.sub(r"(?<!\S)w/(?!\S)", "with", head["rest"])
    split = None if head is None or head["data"][-1] in '"]' else SPLIT.search(rest)
    rest = rest if split is None else f"{rest[: split.start()]} {rest[split.end() :]}"
    read = None if head is None else phrases(IN_CLAUSE.sub(r"\1.", DASHES.sub("", rest)), True, method_of(line))
    if head is None or read is None:
        return None
    form = "" if split is None else f"[{split[1]}]"
    form += (f" for {read.length}" if read.length else "") + (f" with {' '.join(read.forms)}" if read.forms else "")
    legal = not findings_of(f"xpc 1\ntrain m on d{form}\n")
    comment = f" #{comment}" if comment else ""
    return _Rewrite(head.end("verb"), head.end("data"), form, comment, read.unclear) if legal else None
