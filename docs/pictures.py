"""Draw the pictures of the pages: `xpc check` on a spec with mistakes, the plan of four strategies, and a stopped run.

python docs/pictures.py      writes docs/error.svg, plan.svg and stop.svg (`make docs` runs it)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan.experiment import Assumptions, Plan, plan
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
"""For each colour code of compiler/render/color.py, the colour in the picture, which has a dark background."""
WIDTH, HEIGHT, MARGIN = 8.4, 19, 20
"""In pixels: the width of a character and the height of a line of 14 px, and the margin around the text."""


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
        'aria-label="xpc check finds three mistakes, each with a value to type">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="#c9d1d9" '
        f'xml:space="preserve">\n{chr(10).join(rows)}\n</g>\n</svg>\n'
    )


def error() -> str:
    """An SVG of a terminal in which `xpc check` prints the errors of SPEC."""
    problems = check_text(SPEC.encode(), "run.xp", Workspace(HERE)).problems
    return picture("$ xpc check run.xp\n" + render(problems, "full", color=True))


STYLE = """\
<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328; }
.n { font-size: 12px; fill: #59636e; }
.c { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #0969da; }
</style>
"""
PLANNED = """\
xpc 1
train qwen2.5-3b on infinity-instruct for 1 epochs
hardware 8 x a100-40gb
strategy {strategy}
precision bf16
batch(gbs=64, micro=1, seq=2048)
"""
STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
PARTS = {
    "weights": ("#0969da", ("weights", "gathered weights", "autocast copies")),
    "gradients": ("#8250df", ("gradients",)),
    "optimizer": ("#bf8700", ("optimizer", "master")),
    "activations": ("#1a7f37", ("activations", "logits and loss", "recomputation", "backward temporaries")),
    "communication": ("#8c959f", ()),
}
"""For each part of a bar: its colour, and the plan's components that it sums. The last part has all other
components.
"""
GIB = 2**30


def bars() -> str:
    """An SVG of bars: the memory of one GPU under each strategy, as `xpc plan` predicts it."""
    plans = {one: _planned(PLANNED.format(strategy=one)) for one in STRATEGIES}
    capacity = plans["ddp"].capacity / GIB
    scale = 620 / (max(one.peak.value for one in plans.values() if one.peak) / GIB)
    rows: list[str] = []
    for row, (name, one) in enumerate(plans.items()):
        assert one.memory is not None
        assert one.peak is not None
        left, top = 90.0, 64 + 44 * row
        rows.append(f'<text x="24" y="{top + 19}" class="c">{name}</text>')
        for color, size in _parts(one.memory.components):
            rows.append(f'<rect x="{left:.1f}" y="{top}" width="{size * scale:.1f}" height="28" fill="{color}"/>')
            left += size * scale
        words = f"{one.peak.value / GIB:.1f} GiB: {'fits' if one.verdict == 'fits' else 'does not fit'}"
        rows.append(f'<text x="{left + 8:.1f}" y="{top + 19}">{words}</text>')
    edge, bottom = 90 + capacity * scale, 64 + 44 * len(plans)
    rows.append(f'<path d="M{edge:.1f} 50V{bottom}" stroke="#cf222e" stroke-width="2" stroke-dasharray="5 4"/>')
    rows.append(f'<text x="{edge + 6:.1f}" y="{bottom + 4}" class="n">all of the GPU, {capacity:.1f} GiB</text>')
    for column, (name, (color, _)) in enumerate(PARTS.items()):
        rows.append(f'<rect x="{24 + 130 * column}" y="{bottom + 20}" width="12" height="12" fill="{color}"/>')
        rows.append(f'<text x="{42 + 130 * column}" y="{bottom + 31}" class="n">{name}</text>')
    title = "xpc plan: qwen2.5-3b in bf16 on 8 x a100-40gb, one sequence of 2,048 tokens, memory of one GPU"
    rows.insert(0, f'<text x="24" y="32">{title}</text>')
    return drawing(900, bottom + 48, "The predicted memory of one GPU under ddp, zero1, zero2 and zero3", rows)


def _planned(text: str) -> Plan:
    spec = check_text(text.encode(), "plan.xp", Workspace(HERE, allow_oom=True)).spec
    assert spec is not None
    return plan(spec, Assumptions())


def _parts(components: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """The colour and the GiB of each part of a bar (a key of PARTS)."""
    known = {name for _, names in PARTS.values() for name in names}
    for color, names in PARTS.values():
        members = names or [name for name in components if name not in known]
        yield color, sum(components.get(name, 0.0) for name in members) / GIB


RUNS = (
    ("stopped", "Ctrl-C or SIGTERM", 260, 260, "saves, ends with 75", "nothing is lost"),
    ("killed", "kill -9, or the power fails", 260, 200, "", "the steps since the checkpoint run again"),
)
"""Two interrupted runs. For each: how it ends, at which step, the checkpoint from which it resumes, what it does before
it ends, and what is lost.
"""
EVERY, STEPS = 100, 500


def stops() -> str:
    """The picture of a stopped run and a killed run: a line of steps for each, and the step from which the same command
    continues.
    """
    rows = [
        '<text x="24" y="30">A run of 500 steps that saves every 100. The same command goes on:</text>',
        '<text x="530" y="30" class="c">mine.bundle/launch.sh</text>',
    ]
    for number, (name, cause, end, start, action, lost) in enumerate(RUNS):
        top = 78 + 118 * number
        x = [_x(step) for step in range(0, STEPS + 1, EVERY)]
        rows.append(f'<text x="24" y="{top + 5}">{name}</text>')
        rows.append(_line(0, end, top, "#0969da"))
        rows.append(_line(start, STEPS, top + 40, "#1a7f37"))
        for step, location in zip(range(0, STEPS + 1, EVERY), x, strict=True):
            level = top if step <= end else top + 40
            if step:
                rows.append(
                    f'<circle cx="{location}" cy="{level}" r="5" fill="#ffffff" stroke="#1f2328" stroke-width="2"/>'
                )
            rows.append(f'<text x="{location - 8}" y="{level - 12}" class="n">{step}</text>')
        rows.append(f'<path d="M{_x(end) - 6} {top - 6}l12 12m0 -12l-12 12" stroke="#cf222e" stroke-width="3"/>')
        note = f"{cause} in step {end}" + (f": {action}" if action else "")
        rows.append(f'<text x="{_x(end) + 14}" y="{top - 8}" class="n">{note}</text>')
        rows.append(f'<path d="M{_x(start)} {top + 8}V{top + 34}" stroke="#1a7f37" stroke-dasharray="3 3"/>')
        rows.append(f'<text x="130" y="{top + 45}" class="n">goes on from {start}</text>')
        rows.append(f'<text x="{_x(start) + 10}" y="{top + 60}" class="n">{lost}</text>')
    rows.append('<circle cx="32" cy="300" r="5" fill="#ffffff" stroke="#1f2328" stroke-width="2"/>')
    rows.append(
        '<text x="46" y="305" class="n">a checkpoint; a checkpoint that was only partly written is not used</text>'
    )
    return drawing(900, 324, "A stopped run goes on from the step of the stop, a killed run from its checkpoint", rows)


def _x(step: int) -> int:
    return 130 + round(700 * step / STEPS)


def _line(start: int, end: int, level: int, color: str) -> str:
    return f'<path d="M{_x(start)} {level}H{_x(end)}" stroke="{color}" stroke-width="4"/>'


def drawing(width: int, height: int, label: str, rows: Sequence[str]) -> str:
    """A picture with a white background, which is readable in dark themes, too."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{label}">\n{STYLE}<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n'
        f"{chr(10).join(rows)}\n</svg>\n"
    )


PICTURES: Mapping[str, Callable[[], str]] = {"error.svg": error, "plan.svg": bars, "stop.svg": stops}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as handle:
            handle.write(draw())
