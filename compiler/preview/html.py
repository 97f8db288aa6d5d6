"""Show a preview as one HTML page: tokens that count in the loss are highlighted, and a click on a token shows its id.

The page can be opened from disk, loads no other file and contains no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from xpc.compiler.preview.show import (
    NAMES,
    TEMPLATE,
    common_tokens,
    counted,
    counts,
    group,
    images,
    order,
    rewards,
    rollout,
    stretches,
    summary,
    surveyed,
    title,
)
from xpc.compiler.render.page import page as frame
from xpc.compiler.render.page import text
from xpc.compiler.render.visible import visible
from xpc.grammar.package_data import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LEGEND = (
    '<p class=soft>Marked text <b class="learn">bears loss</b>; <s>struck text</s> is cut off. Open "tokens" for each '
    "token with its id; &middot; is a space, \\n a line break.</p>"
)


def page(found: Mapping[str, Any], spec: str) -> str:
    """The HTML page of a preview; `spec` is the path of the spec."""
    parts = [f"<h1>{text(spec)}</h1>", f"<p class=verdict>{text(summary(found))}</p>", LEGEND]
    for row in found["rows"]:
        parts += _row(found, row)
    if found.get("order"):
        steps, explained = order(found)
        parts += ["<section><h2>order</h2>", *_lines(steps), f"<p class=soft>{text(explained)}</p></section>"]
    if found.get("stored"):
        parts += [f"<section><h2>{text(surveyed(found))}</h2>", *_verdicts(found["stored"]), "</section>"]
    if found.get("counts"):
        parts += ["<section><h2>counts</h2>", *_lines([*found["messages"], *counts(found["counts"])]), "</section>"]
    return frame(f"{spec}: xpc preview", parts, read_text(__file__, "page.css"))


def _lines(lines: Sequence[str]) -> Iterator[str]:
    return (f"<p>{text(one)}</p>" for one in lines if one)


def _prose(content: str) -> str:
    """The text of a row as HTML. Its line breaks and spaces are kept."""
    return "<br>".join(escape(visible(line)) for line in content.split("\n"))


def _verdicts(verdicts: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for one in verdicts:
        help = f"<br><span class=soft>help: {text(one['help'])}</span>" if one["help"] else ""
        yield f"<p class={one['severity']}><b>{one['code']} {one['slug']}</b>: {text(one['message'])}{help}</p>"


def _row(found: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section><h2>{text(title(row))}</h2>"
    if row["excluded"]:
        yield f"<p class=warning>not trained on: {text(row['excluded'])}</p>"
    yield from _verdicts(row["verdicts"])
    yield from (f"<p class=soft>{text(one)}</p>" for one in images(row))
    for one in row["sequences"]:
        name = NAMES.get(one["name"], one["name"])
        yield f"<h3>{text(f'{name}: ' if name else '')}{text(counted(one, found['bears_loss']) + group(found))}</h3>"
        yield from _sequence(one)
    if common := common_tokens(row["sequences"]):
        yield f"<p class=soft>chosen and rejected share their first {common:,} tokens</p>"
    yield from (f"<p>{text(one)}</p>" for one in rewards(row))
    if "rollout" in row:
        yield from (f"<p>{_prose(one)}</p>" for one in rollout(row["rollout"]))
    yield "</section>"


def _sequence(one: Mapping[str, Any]) -> Iterator[str]:
    # all parts are on one line of HTML without spaces between them, because the page shows every space
    yield f"<div class=row>{''.join(_turns(one))}</div>"
    yield "<details><summary>tokens</summary><p class=tokens>"
    for token in one["tokens"]:
        shown = escape(visible(token[1]).replace(" ", "\u00b7")) or "&hellip;"
        yield f"<span{' class=learn' if token[2] else ''}>{shown}<small>{token[0]}</small></span>"
    yield "</p></details>"


def _turns(one: Mapping[str, Any]) -> Iterator[str]:
    """The text of a sequence as HTML, with a paragraph for each turn."""
    turn, opened = None, False
    if one["cut"]["start"]:
        yield f"<p><s>{_prose(''.join(token[1] for token in one['cut']['start']))}</s></p>"
    for number, learned, part in stretches(one):
        if number != turn:
            role = TEMPLATE if number < 0 else one["roles"][number] if number < len(one["roles"]) else ""
            yield ("</p>" if opened else "") + f"<p><i>{text(role)}</i>"
            turn, opened = number, True
        prose = _prose("".join(token[1] for token in part))
        yield f'<b class="learn">{prose}</b>' if learned else f"<span>{prose}</span>"
    if one["cut"]["end"]:
        yield f"<s>{_prose(''.join(token[1] for token in one['cut']['end']))}</s>"
    yield "</p>" if opened else ""
