"""Read quantities in the notations of other tools: calculations, durations and sizes of memory. Imported only for a
wrong spec.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from operator import add, floordiv, lshift, mul, truediv

from xpc.compiler.suggest.tables import mapped

COUNTED = mapped("numbers")
"""Maps number words to numbers: `two` is 2."""
LARGEST = 10**12
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
TIME = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milli\w*|w(?:eeks?)?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?|')(?![a-z])"
)
CLOCK = re.compile(r"(?:(\d+)[-:])?(\d+):(\d\d):(\d\d)")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT])(?:iga|ega|era)?(?:i?b(?:ytes?)?)?", re.I)
ARITHMETIC: dict[type[ast.operator], Callable[..., float]] = {
    ast.Mult: mul, ast.Div: truediv, ast.FloorDiv: floordiv, ast.Add: add, ast.LShift: lshift, ast.Pow: pow,
}  # fmt: skip
TYPOGRAPHIC = str.maketrans(
    {"×": "*", "·": "*", "⁻": "-", "−": "-", "–": "-"} | {s: str(n) for n, s in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
)


def arithmetic(text: str) -> float | None:
    """The result of a calculation: 128 for `8 * 16`. None for any other text, and for a result that is not positive or
    too large.
    """
    if re.fullmatch(r"0x[0-9a-fA-F]{1,12}", text):
        return int(text, 16)
    text = re.sub(r"10(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", "10**", text).translate(TYPOGRAPHIC)
    text = re.sub(r"(?<=\d)(?:,000)+$", lambda zeros: zeros[0].replace(",", ""), text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b(?!,?\d))", "", re.sub(r"^(\d),(?=\d+(?:e-\d+)?$)(?!\d{3}$)", r"\1.", text))
    text = re.sub(r"(?<=\d)[ \t]*[xX][ \t]*(?=\d)", "*", text.replace("^", "**"))
    if not re.fullmatch(r"(?:sqrt(?=\()|[\d_\s.eE+*/()<-])+", text):
        return None
    try:
        value = _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (ArithmeticError, ValueError, SyntaxError, KeyError, TypeError, RecursionError):
        return None
    return value if 0 < value <= LARGEST else None


def _evaluate(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "sqrt"
        and len(node.args) == 1
    ):
        return math.sqrt(_evaluate(node.args[0]))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if not isinstance(node, ast.BinOp):
        raise ValueError
    one, other = _evaluate(node.left), _evaluate(node.right)
    if isinstance(node.op, ast.Pow | ast.LShift) and (abs(one) > 1024 or abs(other) > 40):
        raise ValueError
    return ARITHMETIC[type(node.op)](one, other)


def duration(text: str) -> str | None:
    """A duration in one unit: `90m` for `1h30`, `PT1H30M` and `timedelta(hours=1.5)`. None for any other text."""
    text = re.sub(r"(?<=\d),(?=\d)", ".", text)
    days = re.fullmatch(r"\d+-\d+(:\d\d)?", text)  # Slurm's days and hours
    clock = CLOCK.fullmatch(text if days is None else text + (":00" if days[1] else ":00:00"))
    if clock is not None:
        text = " ".join(f"{part or 0}{unit}" for part, unit in zip(clock.groups(), "dhms", strict=True))
    lower = re.sub(r"\w*\.?timedelta\((.*)\)", r"\1", text.lower())
    lower = re.sub(r"\b([a-z]+)=([\d.]+)", r"\2 \1", re.sub(r"^pt?(?=\d)", "", lower))
    lower = re.sub(r"\b([a-z]+) and a half\b", r"0.5 \1 \1", re.sub(r"\bhalf (?:a|an)\b", "0.5", lower))
    lower = re.sub(r"\b(?:a|an)\b", "1", re.sub(r"(?<=\dh)(\d\d?)$", r"\1m", lower))
    lower = re.sub(r"[a-z]+", lambda word: str(COUNTED.get(word[0], word[0])), lower)
    times = [(float(count), unit.replace("'", "m")) for count, unit in TIME.findall(lower)]
    total = sum(count * SECONDS["ms" if unit[:2] == "ms" or unit[:3] == "mil" else unit[0]] for count, unit in times)
    months = re.fullmatch(r"\d+M", text)  # `30M` may be minutes or months
    if months or total <= 0 or total != round(total) or re.sub(r"[\s,]|and", "", TIME.sub("", lower)):
        return None
    if len(times) == 1 and total % 86400 == 0 and "d" in lower:
        return f"{total // 86400:.0f}d"
    size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "m"), (1, "s")) if total % size == 0)
    return f"{total // size:.0f}{unit}"


def gibibytes(text: str) -> str | None:
    """Convert a size of memory to whole GiB: both `200G` (Slurm) and `200Gi` (Kubernetes) become 200."""
    size = SIZE.fullmatch(text)
    gib = 0 if size is None else float(size[1]) * {"M": 1 / 1024, "G": 1, "T": 1024}[size[2].upper()]
    return f"{gib:.0f}" if gib and gib == round(gib) else None
