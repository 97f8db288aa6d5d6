"""Draw the curves of a run as SVG: ``python3 picture.py OUT`` writes OUT/picture.svg from OUT/metrics.jsonl.

A run draws its picture when it ends. A user can call this program to draw a run that has not ended. Standard library
only, and no other module of the bundle.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, floor, inf, isfinite, log10
from typing import Any, NamedTuple

FILE, METRICS, MEASURED = "picture.svg", "metrics.jsonl", "measured.jsonl"
REWARDS = "rewards"
"""The title of a panel with one curve per reward function. There is no such panel for a single function."""
PANELS = ("reward", REWARDS, "accuracy", "margin", "loss", "learning rate", "tokens/s")
"""The panels of a picture, in their order. A run has only the panels whose metrics it has logged."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b2df8a")
"""Colours that colour-blind people can distinguish (Okabe and Ito 2008); the last two are additions."""
WIDTH, HEIGHT = 400, 230
"""The size of a panel in pixels. On a phone, a panel is as wide as the screen; text of 11 pixels is then readable."""
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 40, 26
POINTS = 300
"""A curve's steps are divided into at most this many parts. Of each part, the lowest and highest value are drawn."""
STYLE = (
    ".curves text{font:11px system-ui,sans-serif;fill:#3a4452}.curves .title{font-weight:600;font-size:12px}"
    ".curves .grid{stroke:#d7dce3;stroke-width:1}.curves .restart{stroke-dasharray:2 3;stroke-width:1}"
    ".curves path{fill:none;stroke-width:1.6;stroke-linejoin:round}.curves .eval{stroke-dasharray:6 3}"
    ".curves .page{fill:#fff}@media(prefers-color-scheme:dark){.curves text{fill:#c6ced9}.curves .grid{stroke:#2f3742}"
    ".curves .page{fill:#12161c}}"
)
LARGEST = 1e30
"""Values and steps that are larger than this are not drawn."""
Points = list[tuple[float, float]]


class Curve(NamedTuple):
    """One line of a panel: its name in the legend, its points (step, value), its colour, and whether it is dashed."""

    name: str
    points: Points
    color: str
    dashed: bool = False


def curves(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Points]]:
    """The points of each metric by panel and name. They include values that are not finite: these interrupt the drawn
    line.
    """
    found: dict[str, dict[str, Points]] = {name: {} for name in PANELS}
    before: tuple[float, float] | None = None
    for event in events:
        step = event["step"]
        for key, value in event.items():
            panel = _panel(key)
            if panel and (number := _number(value)) is not None:
                name = key.replace("rewards/", "", 1).removesuffix("/mean") if panel == REWARDS else key
                found[panel].setdefault(name, []).append((step, number))
        now = _number(event.get("tokens")), _number(event.get("seconds"))
        if now[0] is None or now[1] is None or "loss" not in event:
            continue
        if before is not None and now[1] > before[1] and now[0] > before[0]:
            speed = (now[0] - before[0]) / (now[1] - before[1])
            found["tokens/s"].setdefault("tokens/s", []).append((step, speed))
        before = now[0], now[1]
    if sum(not name.startswith("eval_") for name in found[REWARDS]) < 2:
        found[REWARDS] = {}
    return {panel: named for panel, named in found.items() if named}


def _panel(key: str) -> str:
    evaluated = key.startswith("eval_")
    if key == "loss" or (evaluated and key.endswith("_loss")):
        return "loss"
    if key.endswith(("min_reward", "mean_reward", "max_reward")):
        return ""  # the scores of a reward model grow without limit; only their margin is drawn
    if key == "reward" or (evaluated and key.endswith("_reward")):
        return "reward"
    if key == "accuracy" or (evaluated and key.endswith("_accuracy") and not key.endswith("_token_accuracy")):
        return "accuracy"
    if key.endswith("/mean") and (key.startswith("rewards/") or (evaluated and "rewards/" in key)):
        return REWARDS
    margin = key == "margin" or key.endswith("rewards/margins") or (evaluated and key.endswith("_margin"))
    return "margin" if margin else "learning rate" if key == "lr" else ""


def is_step(value: object) -> bool:
    """Whether a value can be the step of an event."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _number(value: object) -> float | None:
    """A number of metrics.jsonl, in which nan and infinity are strings. A number too large to draw becomes infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST or number != number else inf


def panel(title: str, found: Sequence[Curve], restarts: Iterable[tuple[float, str]] = (), legend: bool = True) -> str:
    """One panel as an `<svg>` element. `restarts` are pairs: a step at which a run started again, and a colour."""
    every = [point for curve in found for point in curve.points if isfinite(point[1])]
    high = max((x for x, _ in every), default=1.0)
    low = min((x for x, _ in every), default=0.0)
    low = 0.0 if low <= 0.1 * high else low
    high = high if high > low else low + 1
    bottom, top = min((y for _, y in every), default=0.0), max((y for _, y in every), default=1.0)
    if 0 < bottom < 0.4 * top or title == "tokens/s":
        bottom = min(0.0, bottom)
    if top - bottom <= 1e-9 * max(1e-300, abs(top)):
        bottom, top = bottom - (abs(bottom) or 1) / 2, top + (abs(top) or 1) / 2
    names, more = _legend(found if legend and len(found) > 1 else ())
    above = TOP + more

    def place(x: float, y: float) -> str:
        across = LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f} {HEIGHT - BOTTOM - (y - bottom) / (top - bottom) * (HEIGHT - above - BOTTOM):.1f}"

    parts = [f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>']
    parts.append(f'<text class="title" x="8" y="16">{_text(title)}</text>')
    for value in _ticks(bottom, top, 4):
        y = place(low, value).split()[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    for value in _ticks(low, high, 5):
        if value == int(value):
            x = place(value, bottom).split()[0]
            parts.append(f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle">{_short(value)}</text>')
    for step, color in restarts:
        if low <= step <= high:
            x = place(step, bottom).split()[0]
            parts.append(
                f'<line class="restart" stroke="{color}" x1="{x}" x2="{x}" y1="{above}" y2="{HEIGHT - BOTTOM}">'
                f"<title>started again from step {step:,.0f}</title></line>"
            )
    for curve in found:
        kind = ' class="eval"' if curve.dashed else ""
        parts.append(f'<path{kind} stroke="{curve.color}" d="{_line(curve.points, place)}"/>')
    parts += names
    return (
        f'<svg class="curves" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{_text(title)} by step">{"".join(parts)}</svg>'
    )


def _legend(found: Sequence[Curve]) -> tuple[list[str], int]:
    """Return a pair: the curves' names, in as many lines as needed, and the height of all these lines but the first."""
    parts: list[str] = []
    across, y = 8, 33
    for curve in found:
        name = curve.name if len(curve.name) <= 24 else curve.name[:23] + "\u2026"
        if across > 8 and across + 20 + 6 * len(name) > WIDTH:
            across, y = 8, y + 15
        kind = ' class="eval"' if curve.dashed else ""
        parts.append(f'<path{kind} stroke="{curve.color}" d="M{across} {y - 4}h16"/>')
        parts.append(f'<text x="{across + 20}" y="{y}">{_text(name)}</text>')
        across += 34 + 6 * len(name)
    return parts, y - 33


def _line(points: Points, place: Any) -> str:
    """The path of a curve. A single point is drawn as a ring, so that it is visible."""
    words, going = [], False
    for x, y in _thinned(points):
        if isfinite(y):
            words.append(("L" if going else "M") + place(x, y))
        going = isfinite(y)
    if len([one for one in points if isfinite(one[1])]) == 1:
        words.append("m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0")
    return "".join(words)


def _thinned(points: Points) -> Points:
    """At most twice ``POINTS`` points, in order: the lowest and the highest point of each part. In addition, all values
    that are not finite."""
    size = ceil(len(points) / POINTS)
    if size <= 2:
        return points
    out: Points = []
    for start in range(0, len(points), size):
        near = points[start : start + size]
        finite = [one for one in near if isfinite(one[1])]
        ends = {min(finite, key=lambda one: one[1]), max(finite, key=lambda one: one[1])} if finite else set()
        ends |= {one for one in near if not isfinite(one[1])}
        out += sorted(ends, key=lambda one: one[0])
    return out


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high; the distance between two is 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    if not rough > 0 or not isfinite(rough):
        return [low]
    power = 10.0 ** floor(log10(rough))
    apart = next((power * one for one in (1, 2, 5, 10) if power * one >= rough * 0.999), 10 * power)
    first, last = ceil(low / apart - 1e-9), floor(high / apart + 1e-9)
    return [number * apart for number in range(first, min(last, first + 4 * most) + 1)]


def _short(value: float) -> str:
    size = abs(value)
    for unit, word in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.4g}{word}"
    return f"{value:.4g}" if size >= 0.01 or not size else f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")


def _text(words: str) -> str:
    """A text of the run, escaped for SVG. Unprintable characters are spelled out."""
    if not words.isprintable():
        words = "".join(one if one.isprintable() else f"<U+{ord(one):04X}>" for one in words)
    return escape(words)


def panels(found: Mapping[str, Mapping[str, Points]], restarts: Sequence[float]) -> list[str]:
    """The panels of one run."""
    marks = [(step, "#c62828") for step in restarts]
    out = []
    for title, named in found.items():
        names = sorted(named, key=lambda one: (one.startswith("eval_"), one))[: len(COLORS)]
        lines = [
            Curve(name, named[name], COLORS[number], name.startswith("eval_")) for number, name in enumerate(names)
        ]
        out.append(panel(title, lines, marks))
    return out


def picture(events: Iterable[Mapping[str, object]], restarts: Sequence[float]) -> str:
    """The complete picture of one run: its panels, two in a row."""
    drawn = panels(curves(events), restarts) or [panel("no step was logged", ())]
    columns = min(2, len(drawn))
    rows = ceil(len(drawn) / columns)
    width, height = columns * WIDTH, rows * HEIGHT
    placed = [
        one.replace("<svg ", f'<svg x="{number % columns * WIDTH}" y="{number // columns * HEIGHT}" '
                    f'width="{WIDTH}" height="{HEIGHT}" ', 1)
        for number, one in enumerate(drawn)
    ]  # fmt: skip
    return (
        f'<svg class="curves" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}">\n<style>{STYLE}</style>\n<rect class="page" width="{width}" height="{height}"/>\n'
        + "\n".join(placed) + "\n</svg>\n"
    )  # fmt: skip


def restarts_of(measured: Iterable[Mapping[str, Any]]) -> list[float]:
    """The steps at which a run started again, from the lines of measured.jsonl."""
    steps = [one["step"] for one in measured if "started" in one]
    return [float(step) for step in steps[1:]]


def write(out: str) -> str:
    """Draw the run in the folder ``out``; returns the path of the picture. Raises OSError."""
    events = sorted(_lines(os.path.join(out, METRICS)), key=lambda one: one["step"])
    path = os.path.join(out, FILE)
    text = picture(events, restarts_of(_lines(os.path.join(out, MEASURED))))
    with open(path + ".part", "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(path + ".part", path)
    return path


def _lines(path: str) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file that have a step. A damaged line is skipped."""
    found = []
    if os.path.isfile(path):
        with open(path, "rb") as handle:
            for line in handle:
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(event, dict) and is_step(event.get("step")):
                    found.append(event)
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.path.isfile(os.path.join(sys.argv[1], METRICS)):
        sys.exit(f"usage: python3 {sys.argv[0]} OUT, the folder of a run with {METRICS}")
    print(write(sys.argv[1]))
