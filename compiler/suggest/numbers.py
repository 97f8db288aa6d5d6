"""Rewrite numbers in other notations: `4,096`, `8*16`, `0x2a`, `1 x 4090`, `4bit`. Imported only for such a mistake."""

from __future__ import annotations

import re
from operator import add, mul, truediv

from xpc.compiler import registry
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

TIMES = re.compile(r"=[ \t]*(?P<count>\d+)[ \t]*x(?=[ \t]*(?:[),#\n]|$|[a-z_.]+[ \t]*=))")
"""A pattern for a count with an `x` but nothing after it: `nodes=2x`."""
COUNT = re.compile(r"(?P<count>\d+)[ \t]*x[ \t]*(?P<gpu>\d[\w.-]*)")
HEX = re.compile(r"0x[0-9a-fA-F]{1,12}\b")
PRODUCT = re.compile(
    r"(?<![\w.+-])(?P<one>\d[\d.]{0,11}(?:e[+-]?\d{1,3})?)[ \t]*(?P<sign>\*\*|[*^/+])[ \t]*"
    r"(?P<other>(?:(?<=[*^])-)?\d[\d.]{0,11}(?:e[+-]?\d{1,3})?)(?![\w.])"
)
CARDS = re.compile(r"(?<![\w.])(?P<count>\d+)[ \t]*\*[ \t]*(?P<what>[a-zA-Z][\w.-]*)")
"""A pattern for a number of GPUs written as a product: `8 * h100-80gb`."""
THOUSANDS = re.compile(r"(?<![\w.])[1-9]\d{0,2}(?:,\d{3})+(?![\w.])")
PAIR = re.compile(r"=[ \t]*(?P<list>(?P<one>[\d.eE-]+)[ \t]*,[ \t]*(?P<other>[\d.eE-]+))[ \t]*(?:#.*)?$")
DECIMAL = re.compile(r"(?<==)[ \t]*(?P<whole>\d),(?P<part>\d+)(?![\w.,])")
"""A pattern for a number with a decimal comma: `lr=0,0001`."""
BITS = re.compile(r"(?<![\w.])(?P<bits>[48])-?bit\b")
LARGEST = 10**12


def rewrite_number(found: Diagnostic) -> Diagnostic:
    """Add help and an edit to a finding about a number: how to write the number in xpc's notation."""
    form = None if found.primary is None else _FORMS.get(found.code)
    if form is None or found.primary is None:
        return found
    text, at = found.primary.source.text, found.primary.span.start
    start, end = line_bounds(text, at, at)
    return form(found, text[start:end], start, at - start)


def _put(found: Diagnostic, start: int, end: int, form: str, help: str = "") -> Diagnostic:
    return evolve(found, help=help or f"write `{form}`", edits=(Edit(Span(start, end), form),))


def _counted(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite a hexadecimal number, a count such as `2x`, or a GPU whose name begins with a digit."""
    number = HEX.match(line, at) or HEX.search(line)
    if number is not None:
        return _put(found, start + number.start(), start + number.end(), str(int(number[0], 16)))
    times = TIMES.search(line)
    if times is not None and times.start("count") <= at <= times.end():
        return _put(found, start + times.start("count"), start + times.end(), times["count"])
    match = COUNT.search(line)
    if match is None:
        return found
    gpu = registry.find_gpu(match["gpu"])
    if gpu is None and match["gpu"].isdecimal():
        return found
    if gpu is None:
        help = f"`{match['gpu'][:40]}` is not a registered GPU: `xpc list gpus` prints them"
        return evolve(found, help=help, edits=())
    form = f"{match['count']} x {gpu.name}"
    return _put(found, start + match.start("gpu"), start + match.end("gpu"), gpu.name, f"write `{form}`")


def _product(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite a product, a sum, a quotient or a power as its result."""
    for match in PRODUCT.finditer(line):
        value = computed(match["one"], match["sign"], match["other"])
        if match.start() <= at < match.end() and value:
            help = f"write `{value}`: a spec has no arithmetic"
            return _put(found, start + match.start(), start + match.end(), value, help)
    for match in CARDS.finditer(line):
        if match.start() <= at < match.end():
            gpu = registry.find_gpu(match["what"])
            if gpu is not None or match["what"] == "cpu" or any(map(str.isdigit, match["what"])):
                form = f"{match['count']} x {match['what'] if gpu is None else gpu.name}"
                return _put(found, start + match.start(), start + match.end(), form)
    return found


def computed(one: str, sign: str, other: str) -> str:
    """The result of a calculation (`8`, `*`, `16` give `128`), or "" if it cannot be a value."""
    try:
        first, second = (float(text) if set(text) & set(".e") else int(text) for text in (one, other))
        if sign in ("**", "^") and (first > 1024 or abs(second) > 40):
            return ""
        value = {"*": mul, "/": truediv, "+": add}.get(sign, pow)(first, second)
    except (ArithmeticError, ValueError):
        return ""
    return f"{value:.12g}" if 0 < value <= LARGEST else ""


def _commas(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite thousands with commas, a list without brackets, or a statement that begins with a number of bits
    (`4bit`).
    """
    for match in THOUSANDS.finditer(line):
        if match.start() <= at < match.end():
            return _put(found, start + match.start(), start + match.end(), match[0].replace(",", ""))
    for match in DECIMAL.finditer(line):
        if match.start() < at < match.end():
            form = f"{match['whole']}.{match['part']}"
            help = f"write `{form}`: a number has a decimal point"
            return _put(found, start + match.start("whole"), start + match.end(), form, help)
    pair = PAIR.search(line)
    if pair is not None and pair.start() < at < pair.end():
        return _put(found, start + pair.start("list"), start + pair.end("list"), f"[{pair['one']}, {pair['other']}]")
    bits = BITS.match(line, at)
    if bits is not None and (at + len(bits[0]) == len(line.rstrip()) or line[at + len(bits[0]) :][:1] == " "):
        return _put(found, start + bits.start(), start + bits.end(), "qlora" if bits["bits"] == "4" else "lora(bits=8)")
    return found


_FORMS = {
    "XP043": _counted,
    "XP014": _product,
    "XP020": _commas,
    "XP025": _commas,
    "XP104": _commas,
}
