"""Show a report as one HTML page, which can be opened from disk, loads no other file and contains no script.

On a narrow screen, each row of the table is shown as a block. Everything that a run wrote is escaped.
`render.page.text` escapes texts, and `picture.py` escapes the names of metrics for SVG.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler.render.page import page as frame
from xpc.compiler.render.page import text
from xpc.compiler.render.visible import visible
from xpc.compiler.report.entry import Entry, winner
from xpc.compiler.report.row import Row
from xpc.compiler.report.show import HEADS, overview
from xpc.compiler.review.show import headline, sections
from xpc.grammar.package_data import read_text
from xpc.runtime.picture import COLORS, PANELS, REWARDS, STYLE, Curve, curves, panel, panels

LONG = ("Settings", "Arguments", "Versions")
"""Groups of table rows. The page shows such a group folded, unless a row in the group differs from the plan."""


def page(found: Sequence[Entry]) -> str:
    """The HTML page of one run, or of several runs with their curves in one picture."""
    names = ", ".join(one.label for one in found)
    body = [f"<h1>{text(names)}</h1>"]
    if verdict := found[0].summary if len(found) == 1 else winner(found):
        body.append(f"<p class=verdict>{text(verdict)}</p>")
    body += _curves(found) if len(found) > 1 else _pictures(found[0])
    if len(found) > 1:
        body += _overview(found)
        for one in found[1:]:
            body += _difference(found[0], one)
    for one in found:
        body += _one(one, len(found) > 1)
    style = STYLE + read_text(__file__, "page.css")
    return frame(f"{names}: xpc report", body, style)


def _pictures(one: Entry) -> Iterator[str]:
    if one.run is not None and one.run.events:
        again = " A dotted line marks a step at which the run resumed." if one.run.restarts else ""
        yield f"<p class=soft>By step.{again}</p>"
        yield '<div class="curves">' + "".join(panels(_visible(curves(one.run.events)), one.run.restarts)) + "</div>"


def _visible(found: dict[str, dict[str, list[tuple[float, float]]]]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    return {title: {visible(name, 60): points for name, points in named.items()} for title, named in found.items()}


def _curves(found: Sequence[Entry]) -> Iterator[str]:
    """The curves of several runs as HTML. Each run has a colour, and each reward function has a panel. Curves of
    evaluations are dashed.
    """
    colored = [(one, COLORS[number % len(COLORS)]) for number, one in enumerate(found)]
    keys = (f'<li><i style="background:{color}"></i>{text(one.label)}</li>' for one, color in colored)
    yield f'<ul class="runs">{"".join(keys)}</ul>'
    yield "<p class=soft>By step. Evaluations are dashed; a dotted line marks a step at which the run resumed.</p>"
    drawn: dict[tuple[int, str], list[Curve]] = {}
    marks = []
    for one, color in colored:
        if one.run is None:
            continue
        marks += [(step, color) for step in one.run.restarts]
        for title, named in curves(one.run.events).items():
            for name, points in list(named.items())[: len(COLORS)]:
                one_title = visible(f"reward {name.removeprefix('eval_')}", 60) if title == REWARDS else title
                curve = Curve(visible(name, 60), points, color, name.startswith("eval_"))
                drawn.setdefault((PANELS.index(title), one_title), []).append(curve)
    ordered = sorted(drawn.items(), key=lambda one: one[0])
    shown = (panel(title, lines, marks, legend=False) for (_, title), lines in ordered)
    yield f'<div class="curves">{"".join(shown)}</div>'


def _overview(found: Sequence[Entry]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{text(one.label)}</th>' for one in found)
    yield f'<div class="scroll" tabindex="0"><table class="wide"><thead><tr><th></th>{heads}</tr></thead><tbody>'
    group = ""
    for part, name, texts in overview(found):
        if part != group:
            group = part
            yield f'<tr class="group"><th scope="rowgroup" colspan="{len(found) + 1}">{part}</th></tr>'
        cells = "".join(f"<td>{text(one)}</td>" for one in texts)
        yield f'<tr><th scope="row">{text(name)}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _difference(first: Entry, one: Entry) -> Iterator[str]:
    if one.diff is None:
        return
    yield f"<h2>Spec of {text(one.label)}, compared with {text(first.label)}</h2>"
    yield f"<p class=verdict>{text(headline(one.diff))}</p>"
    for title, lines in sections(one.diff):
        yield f"<details open><summary>{text(title)}</summary><ul>"
        yield from (f"<li>{text(line)}</li>" for line in lines)
        yield "</ul></details>"


def _one(one: Entry, several: bool) -> Iterator[str]:
    if several:
        yield f"<h2>{text(one.label)}</h2><p class=verdict>{text(one.summary)}</p>"
    yield from (f"<p class=note>{text(note)}</p>" for note in one.notes)
    for group in dict.fromkeys(row.group for row in one.rows):
        rows = [row for row in one.rows if row.group == group]
        shown = "" if group in LONG and not any(row.differs for row in rows) else " open"
        yield f"<details{shown}><summary>{text(group)}</summary>"
        yield from _table(rows)
        yield "</details>"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    yield f'<table class="three"><thead><tr><th></th>{heads}</tr></thead><tbody>'
    for row in rows:
        texts = zip(HEADS, (row.requested, row.planned, row.actual, row.why), strict=True)
        cells = "".join(f'<td data-head="{head}">{_marked(words)}</td>' for head, words in texts)
        yield f'<tr{" class=differs" if row.differs else ""}><th scope="row">{text(row.name)}</th>{cells}</tr>'
    yield "</tbody></table>"


def _marked(words: str) -> str:
    """A text as HTML. The words between backticks become code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", text(words))
