"""An SVG plot of predicted peaks of GPU memory against measured peaks. Both axes are logarithmic. A prediction is exact
if its point is on the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

SIDE, MARGIN = 460, 56
TICKS = (2, 5, 10, 20, 50, 100)
COLORS = {"exact": "#1f77b4", "other": "#d98c2b"}


def location(value: float) -> float:
    """The position of a value in GiB on an axis."""
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    return round((math.log(min(max(value, TICKS[0]), TICKS[-1])) - low) / (high - low) * SIDE, 1)


def svg(points: Sequence[tuple[float, float, bool]]) -> str:
    """Draw the plot. Each point is a tuple: measured GiB, predicted GiB, and whether torch's allocator reported the
    peak.
    """
    whole = SIDE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{whole}" height="{whole}" fill="#ffffff"/>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
        f'<rect width="{SIDE}" height="{SIDE}" fill="none" stroke="#888888"/>',
        f'<line x1="0" y1="{SIDE}" x2="{SIDE}" y2="0" stroke="#888888" stroke-dasharray="4 3"/>',
    ]
    for tick in TICKS:
        at = location(tick)
        out.append(f'<text x="{at}" y="{SIDE + 18}" text-anchor="middle">{tick}</text>')
        out.append(f'<text x="-8" y="{SIDE - at + 4}" text-anchor="end">{tick}</text>')
    for measured, predicted, exact in points:
        color = COLORS["exact" if exact else "other"]
        x, y = location(measured), round(SIDE - location(predicted), 1)
        out.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}" fill-opacity="0.6"/>')
    named = {"exact": "Hugging Face, the allocator's own peak", "other": "litgpt, reserved memory, nvidia-smi"}
    for number, (kind, words) in enumerate(named.items()):
        out.append(f'<circle cx="14" cy="{16 + 18 * number}" r="4" fill="{COLORS[kind]}"/>')
        out.append(f'<text x="24" y="{20 + 18 * number}">{words}</text>')
    out.append(f'<text x="{SIDE / 2}" y="{SIDE + 40}" text-anchor="middle">measured GiB</text>')
    out.append(f'<text transform="translate(-38 {SIDE / 2}) rotate(-90)" text-anchor="middle">predicted GiB</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])
