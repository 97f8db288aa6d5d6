"""Draw docs/error.svg: what `xpc check` prints in a terminal for a spec with four mistakes.

python docs/pictures.py      writes docs/error.svg (`make docs` runs it)
"""

from __future__ import annotations

import os
import re
from html import escape

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.render import render

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = """\
xpc 1
train qwen2.5-3b on infinity-instruct for 3 epochs
hardware 8 x rtx-8000
strategy zero2
precision bf16
batch(gbs=512, micro=11)
memory(ligre)
"""
COLORS = {"1;31": "#ff7b72", "1;33": "#e3b341", "1;36": "#56d4dd", "1;34": "#79c0ff", "1": "#f0f6fc"}
"""The colours of compiler/render/color.py, on a dark ground."""
WIDTH, HEIGHT, MARGIN = 8.4, 19, 20
"""Pixels of a character and a line of 14 px, and around the text."""


def picture(text: str) -> str:
    """A terminal's text, with ANSI colours, as SVG."""
    lines = text.rstrip("\n").split("\n")
    plain = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines]
    width = round(max(map(len, plain)) * WIDTH) + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    rows = []
    for number, line in enumerate(lines):
        column, color, spans = 0, None, []
        for code, words in re.findall("(?:\x1b\\[([0-9;]*)m)?([^\x1b]*)", line):
            color = COLORS.get(code) if code else color
            if words.strip():
                fill = f' fill="{color}"' if color else ""
                spans.append(f'<tspan x="{MARGIN + column * WIDTH:.1f}"{fill}>{escape(words)}</tspan>')
            column += len(words)
        rows.append(f'<text y="{MARGIN + 14 + number * HEIGHT}">{"".join(spans)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'aria-label="xpc check finds four mistakes, each with a value to type">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="#c9d1d9" '
        f'xml:space="preserve">\n{chr(10).join(rows)}\n</g>\n</svg>\n'
    )


def error() -> str:
    """The picture of the spec's errors."""
    problems = check_text(SPEC.encode(), "run.xp", Workspace(HERE)).problems
    return picture("$ xpc check run.xp\n" + render(problems, "full", color=True))


if __name__ == "__main__":
    with open(os.path.join(HERE, "error.svg"), "w", encoding="utf-8") as handle:
        handle.write(error())
