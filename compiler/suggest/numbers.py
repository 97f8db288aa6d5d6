"""Rewrite numbers in other notations: `4,096`, `8*16`, `0x2a`, `1x10^-5`, `1d12h`. Loaded only for such a mistake."""

from __future__ import annotations

import re
from operator import add, mul, truediv

from xpc.compiler import registry
from xpc.compiler.language.codes import report
from xpc.compiler.language.schema import TABLE, Setting
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, own_reason
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span
from xpc.grammar.tree import Number

TIMES = re.compile(
    r"(?P<name>(?!hardware)\b[\w.]+)(?:[ \t]*=[ \t]*|[ \t]+)(?P<count>\d+)[ \t]*x"
    r"(?=[ \t]*(?:[),#\n]|$|[a-z_.]+[ \t]*=))"
)
"""A pattern for a count with an `x` after it: `nodes=2x`."""
COUNT = re.compile(r"(?P<count>\d+)[ \t]*x[ \t]*(?P<gpu>\d[\w.-]*)")
HEX = re.compile(r"0x[0-9a-fA-F]{1,12}\b")
PRODUCT = re.compile(
    r"(?<![\w.+-])(?P<one>\d[\d.]{0,11}(?:e[+-]?\d{1,3})?)[ \t]*(?P<sign>\*\*|[*^/+])[ \t]*"
    r"(?P<other>(?:(?<=[*^])-)?\d[\d.]{0,11}(?:e[+-]?\d{1,3})?)(?![\w.])"
)
CARDS = re.compile(r"(?<![\w.])(?P<count>\d+)[ \t]*\*[ \t]*(?P<what>[a-zA-Z][\w.-]*)")
"""A pattern for a number of GPUs written as a product: `8 * h100-80gb`."""
THOUSANDS = re.compile(r"(?<![\w.])[1-9]\d{0,2}(?:,\d{3})+(?![\w.])")
PAIR = re.compile(r"=[ \t]*(?P<list>\d[\d.eE-]*(?:[ \t]*,[ \t]*\d[\d.eE-]*)+)[ \t]*\}?[ \t]*(?:#.*)?$")
"""A pattern for a list of numbers without brackets: `betas = 0.9, 0.95`."""
SET = re.compile(r"=[ \t]*(?P<open>\{)(?P<items>[^{}=:\n]*,[^{}=:\n]*)\}")
POWER = re.compile(r"(?P<digits>\d[\d.]*)[ \t]*[xX*×][ \t]*10[ \t]*(?:\^|\*\*)[ \t]*(?P<power>[-−]?\d+)")
"""A pattern for a power of ten in mathematical notation: `1x10^-5`."""
CARDS_OF_NODES = re.compile(r"(?P<nodes>\d+)[ \t]*x[ \t]*(?P<count>\d+)[ \t]+(?:x[ \t]+)?(?P<gpu>[A-Za-z][\w.-]*)")
"""A pattern for hardware that lacks the `x` before the GPU: `2x8 h100-80gb`, which is two nodes of eight GPUs."""
NODES = re.compile(r"nodes[ \t]*=?[ \t]*(?P<nodes>\d+)[ \t]*x[ \t]*\d+")
JOINED = re.compile(r"(?P<count>\d+)x(?P<gpu>[A-Za-z][\w.-]*)")
"""A pattern for a count and a GPU that are written together: `8xh100`."""
SPAN = re.compile(r"\d+[dhms](?:\d+[dhms])+")
"""A pattern for a duration in several units: `1d12h`."""
SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
LOOKALIKES = {"−": "-", "–": "-", "‐": "-", "‑": "-", "×": " x "}
"""Maps typographic signs, such as a long dash, to the signs on the keyboard."""
CLAUSE = re.compile(r"(?:^|[ \t,({])(?P<clause>[a-z_]+)[ \t]*(?:=[ \t]*)?$")
DECIMAL = re.compile(r"(?<==)[ \t]*(?P<whole>\d),(?P<part>\d+)(?![\w.,])")
"""A pattern for a number with a decimal comma: `lr=0,0001`."""
BITS = re.compile(r"(?<![\w.])(?P<bits>[48])-?bit\b")
LARGEST = 10**12
NOUNS = {
    "rows_or_share": ("row", "of the rows"),
    "steps_or_share": ("step", "of the run"),
    "every": ("step", "of the run"),
}
"""Maps a kind of setting to two words for messages: the unit of a count (`row`), and the thing that a share is a part
of (`of the rows`).
"""


def rewrite_number(found: Diagnostic) -> Diagnostic:
    """Add to a finding about a number: a help with the number in xpc's notation, and an edit that inserts it."""
    form = None if found.primary is None else _FORMS.get(found.code)
    if form is None or found.primary is None:
        return found
    text, at = found.primary.source.text, found.primary.span.start
    start, end = line_bounds(text, at, at)
    name = re.match(r"[ \t]*([\w.-]+)[ \t]*=", text[start:end])
    why = None if name is None else own_reason(name[1])
    if why is not None:  # `gpu_ids = 0,1` is no decimal number
        return evolve(found, help=f"{NO_EQUIVALENT}{why}", edits=())
    return form(found, text[start:end], start, at - start)


def _put(found: Diagnostic, start: int, end: int, form: str, help: str = "") -> Diagnostic:
    return evolve(found, help=help or f"write `{form}`", edits=(Edit(Span(start, end), form),))


def _counted(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite what the parser reads as a malformed number: a hexadecimal number, a count such as `2x`, or a GPU whose
    name begins with a digit.
    """
    number = HEX.match(line, at) or HEX.search(line)
    if number is not None:
        return _put(found, start + number.start(), start + number.end(), str(int(number[0], 16)))
    if (power := _power(found, line, start, at)) is not None:
        return power
    nodes = NODES.search(line)
    if nodes is not None and nodes.start() <= at <= nodes.end():
        help = f"write `nodes {nodes['nodes']}`; the GPUs of one node follow `hardware`"
        return evolve(found, message="`nodes` takes one number", help=help, edits=())
    several = CARDS_OF_NODES.search(line)
    if several is not None and several.start() <= at <= several.end() and line.lstrip().startswith("hardware"):
        form = f"{several['count']} x {several['gpu']}"
        help = f"write `{form}` for one machine, and `nodes {several['nodes']}` on its own line"
        return evolve(found, message="a count is one number and one GPU", help=help, edits=())
    joined = JOINED.match(line, at)
    if joined is not None:
        return _of_cards(found, joined, start)
    product = next((one for one in PRODUCT.finditer(line.replace("x", "*")) if one.start() <= at <= one.end()), None)
    if product is not None and line[: product.start()].rstrip().endswith("=") and "hardware" not in line:
        value = computed(product["one"], "*", product["other"])
        if value:
            help = f"write `{value}`: a spec has no arithmetic"
            return _put(found, start + product.start(), start + product.end(), value, help)
    times = TIMES.search(line)
    if times is not None and times.start("count") <= at <= times.end():
        # in a setting that is not an integer, such as `alpha=2x`, the `x` probably means twice the rank
        if any(row.name == times["name"] and row.kind.name != "int" for row in TABLE):
            help = f"write the number of `{times['name']}` itself: a spec has no arithmetic"
            return evolve(found, help=help, edits=())
        return _put(found, start + times.start("count"), start + times.end(), times["count"])
    match = COUNT.search(line)
    # the number before the `x` may have separators, as in `seed = 4_2x`
    if match is None and "=" in line[:at] and "hardware" not in line:
        return evolve(found, help="write the number alone, without an `x`", edits=())
    if match is None:
        return found
    gpu = registry.find_gpu(match["gpu"])
    if gpu is None and match["gpu"].isdecimal():
        return found
    if gpu is None:
        help = f"`{match['gpu'][:40]}` is not a registered GPU: `xpc list gpus` prints the names"
        return evolve(found, help=help, edits=())
    form = f"{match['count']} x {gpu.name}"
    return _put(found, start + match.start("gpu"), start + match.end("gpu"), gpu.name, f"write `{form}`")


def _of_cards(found: Diagnostic, joined: re.Match[str], start: int) -> Diagnostic:
    """The finding for a count and a GPU in one word, such as `8xh100`. It names the GPUs that `h100` may stand for."""
    if registry.find_gpu(joined["gpu"]) is not None:
        return found
    from xpc.compiler.suggest.registry_names import either, gpu

    guess, why = gpu(joined["gpu"])
    if guess.certain:
        form = f"{joined['count']} x {guess.names[0]}"
        return _put(found, start + joined.start(), start + joined.end(), form)
    count = joined["count"]
    help = f"write {either(f'{count} x {one}' for one in guess.names)}" if guess.names else why
    return evolve(found, help=help, edits=())


def _power(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic | None:
    """Rewrite `1x10^-5` as `1e-5`. None for any other text."""
    power = next((one for one in POWER.finditer(line) if one.start() <= at < one.end()), None)
    if power is None or len(power["power"]) > 4:
        return None
    form = f"{power['digits']}e{power['power'].replace('−', '-')}"
    return _put(found, start + power.start(), start + power.end(), form)


def _malformed(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Correct a value that was read as a malformed number: a duration such as `1h30m` becomes `90m`, and a choice that
    begins with a digit, such as `16-mixed`, becomes the spec's name for it.
    """
    span = SPAN.match(line, at)
    if span is not None:
        total = sum(int(count) * SECONDS[unit] for count, unit in re.findall(r"(\d+)([dhms])", span[0]))
        unit = next(one for one in "hms" if total % SECONDS[one] == 0)
        return _put(found, start + at, start + span.end(), f"{total // SECONDS[unit]}{unit}")
    word = re.compile(r"[\w.-]+").match(line, at)
    clause = CLAUSE.search(line[:at]) if "=" in line[:at] else CLAUSE.match(line[:at].lstrip())
    if word is None or found.edits:  # a number such as `.1` already has an edit
        return found
    from xpc.compiler.suggest.known_names import known_choice
    from xpc.compiler.suggest.meaning import choice

    rows = [
        row
        for row in TABLE
        if row.choices and (row.bare if clause is None else clause["clause"] in (row.path, row.name))
    ]
    forms = {form for row in rows if (form := known_choice(row, word[0]) or choice(row, word[0])) is not None}
    return found if len(forms) != 1 else _put(found, start + at, start + word.end(), forms.pop())


def _product(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Replace a product, a sum, a quotient or a power by its result. Typographic signs, such as `×`, are replaced by
    the signs on the keyboard.
    """
    if (power := _power(found, line, start, at)) is not None:
        return power
    instead = LOOKALIKES.get(line[at : at + 1])
    if instead is not None:
        blank = instead.strip() != instead
        first = at - (blank and line[at - 1 : at] == " ")
        last = at + 1 + (blank and line[at + 1 : at + 2] == " ")
        help = f"write `{instead.strip()}`, as on the keyboard"
        return _put(found, start + first, start + last, instead, help)
    for match in PRODUCT.finditer(line):
        value = computed(match["one"], match["sign"], match["other"])
        more = re.match(r"[ \t]*[*/+^-]", line[match.end() :])  # in `2 + 3 * 4`, the product comes before the sum
        if match.start() <= at < match.end() and value and not more:
            help = f"write `{value}`: a spec has no arithmetic"
            return _put(found, start + match.start(), start + match.end(), value, help)
    for match in CARDS.finditer(line):
        if match.start() <= at < match.end():
            gpu = registry.find_gpu(match["what"])
            if gpu is not None or match["what"] == "cpu" or any(map(str.isdigit, match["what"])):
                form = f"{match['count']} x {match['what'] if gpu is None else gpu.name}"
                return _put(found, start + match.start(), start + match.end(), form)
    # the calculation may contain the name of another setting, as in `alpha = 2*rank`
    if not found.edits and line[at : at + 1] in "*/+^" and "=" in re.split(r"[,({]", line[:at])[-1]:
        return evolve(found, help="a spec has no arithmetic: write the value itself", edits=())
    return found


def computed(one: str, sign: str, other: str) -> str:
    """The result of a calculation: 128 for `8`, `*`, `16`. "" if the result cannot be a value."""
    try:
        first, second = (float(text) if set(text) & set(".e") else int(text) for text in (one, other))
        if (sign in ("**", "^") and (first > 1024 or abs(second) > 40)) or (sign == "/" and second < 1):
            return ""
        value = {"*": mul, "/": truediv, "+": add}.get(sign, pow)(first, second)
    except (ArithmeticError, ValueError):
        return ""
    return f"{value:.12g}".replace("e-0", "e-") if 0 < value <= LARGEST else ""


def _commas(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite a number with commas between its thousands, a list without brackets, or a statement that begins with a
    number of bits (`4bit`).
    """
    called = re.search(r"(?<![\w.])\d[\w.-]*$", line[:at])
    # a number of bits may stand before the name of an optimizer, as in `8bit-adam(lr=1e-5)`
    if line[at : at + 1] == "(" and called is not None:
        return evolve(_malformed(found, line, start, called.start()), message=f"`{called[0]}` is not a number")
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
        form = "[" + ", ".join(one.strip() for one in pair["list"].split(",")) + "]"
        return _put(found, start + pair.start("list"), start + pair.end("list"), form)
    bits = BITS.match(line, at)
    if bits is not None and (at + len(bits[0]) == len(line.rstrip()) or line[at + len(bits[0]) :][:1] == " "):
        return _put(found, start + bits.start(), start + bits.end(), "qlora" if bits["bits"] == "4" else "lora(bits=8)")
    return found


def _in_braces(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite a list in braces: `targets = {q_proj, v_proj}`."""
    listed = next((one for one in SET.finditer(line) if one.start() <= at <= one.end()), None)
    return (
        found
        if listed is None
        else _put(found, start + listed.start("open"), start + listed.end(), f"[{listed['items'].strip()}]")
    )


def fraction(row: Setting, node: Number, at: Label) -> Diagnostic:
    """The finding for a number that may be a count or a share: `take = 1.0`, `warmup = 0.03`, `holdout = 2.5`."""
    noun, total = NOUNS[row.kind.name]
    value, name = node.value, row.name
    below = value < 1
    share = f"{name} = {value * 100:g}%" if value <= 1 else f"{name} = {value:g}%" if value < 100 else ""
    # do not suggest `holdout = 100%`, which would leave no rows to train on
    share = "" if name == "holdout" and value == 1 else share
    count = f"{name} = {max(1, round(value))}"
    if below:
        help = f"write `{share}` for a share {total}; {noun}s are counted in whole numbers, from `{count}`"
    else:
        help = f"write `{count}`, because {noun}s are counted in whole numbers" + (
            f", or `{share}` for a share {total}" if share else ""
        )
    message = f"`{node.text[:40]}` may be a number of {noun}s or a share {total}"
    edits = (Edit(node.span, f"{value * 100:g}%"),) if below else ()
    return report("XP105", message, evolve(at, text=f"expected {row.kind.phrase}"), help=help, edits=edits)


_FORMS = {
    "XP043": _counted,
    "XP014": _product,
    "XP040": _malformed,
    "XP020": _commas,
    "XP021": _in_braces,
    "XP022": _commas,
    "XP025": _commas,
    "XP104": _commas,
}
