"""The format for people: the message, the source line with carets, and a legal value to write.

    XP201 batch-does-not-divide: gbs=512 is not micro x accumulation x 8 GPUs
     --> v100.xp:1:50
      |
    1 | train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre
      |                                                  ^^^^^^^ 512 / (11 x 8) = 5.82
    help: the nearest global batches are gbs=440 (accumulation 5) and gbs=528 (accumulation 6)

The first line of an error begins with its code; the first line of a warning or a note begins with its severity. If a
finding has several positions, all but the first follow after `:::`. If consecutive notes have the same position, its
source line is shown only once. The last line counts the findings.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.render.color import Paint
from xpc.compiler.render.snippet import Snippet, snippet
from xpc.compiler.render.visible import LONGEST, visible
from xpc.grammar.diagnostic import ERROR, NOTE, WARNING, Diagnostic


def render(diagnostics: Sequence[Diagnostic], color: bool) -> str:
    """The findings as blocks with empty lines between them, and at the end their number. "" if there
    are no findings.
    """
    if not diagnostics:
        return ""
    paint = Paint(color)
    blocks = [
        _block(diagnostic, paint, shown=number > 0 and _same_location(diagnostics[number - 1], diagnostic))
        for number, diagnostic in enumerate(diagnostics)
    ]
    return "\n".join([*blocks, _summary(diagnostics) + "\n"])


def _same_location(previous: Diagnostic, this: Diagnostic) -> bool:
    """Whether a note has the same position as the note before it, so that its source line need not be shown again."""
    return previous.severity == this.severity == NOTE and not this.related and previous.primary == this.primary


def _block(diagnostic: Diagnostic, paint: Paint, shown: bool = False) -> str:
    severity = diagnostic.severity
    word = "" if severity == ERROR else f"{visible(severity)} "
    name = paint.severity(severity, f"{word}{visible(diagnostic.code)} {visible(diagnostic.slug)}")
    lines = [f"{name}{paint.bold(': ' + visible(diagnostic.message, LONGEST))}"]
    primary = [] if diagnostic.primary is None or shown else [snippet(diagnostic.primary)]
    related = [snippet(label) for label in diagnostic.related]
    width = max((len(str(s.number)) for s in primary + related), default=1)
    for one in primary:
        lines += _lines(one, "-->", width, paint, severity)
    for one in related:
        lines += _lines(one, ":::", width, paint, NOTE)
    if diagnostic.help is not None:
        first, *rest = diagnostic.help.split("\n")
        lines.append(f"{paint.help('help:')} {visible(first, LONGEST)}".rstrip())
        lines += [f"      {visible(line, LONGEST)}".rstrip() for line in rest]
    return "\n".join(lines) + "\n"


def _lines(shown: Snippet, arrow: str, width: int, paint: Paint, severity: str) -> list[str]:
    margin = " " * width
    marks = paint.severity(severity, f"{shown.marks.lstrip()} {shown.label}".rstrip())
    indent = " " * (len(shown.marks) - len(shown.marks.lstrip()))
    return [
        f"{margin}{paint.gutter(arrow)} {shown.file}:{shown.number}:{shown.column}",
        f"{margin} {paint.gutter('|')}",
        f"{paint.gutter(f'{shown.number:>{width}} |')} {shown.text}".rstrip(),
        f"{margin} {paint.gutter('|')} {indent}{marks}",
    ]


def _summary(diagnostics: Sequence[Diagnostic]) -> str:
    counts = ((word, sum(d.severity == word for d in diagnostics)) for word in (ERROR, WARNING, NOTE))
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts if count)
