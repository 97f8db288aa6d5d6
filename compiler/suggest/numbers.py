"""Rewrite counts of GPUs and choices that begin with a digit: `8xh100`, `16-mixed`. Loaded only for such a mistake."""

from __future__ import annotations

import re

from xpc.compiler.language.codes import report
from xpc.compiler.language.schema import TABLE, Setting
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.lines.notations import machines
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, own_reason
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.similar_choices import choice
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
CARDS = re.compile(r"\d+[ \t]*x[ \t]*[\w.-]+")
"""A pattern for a count and a GPU: `8xh100`, `2 x 4090`."""
CARDS_OF_NODES = re.compile(r"(?P<nodes>\d+)[ \t]*x[ \t]*(?P<count>\d+)[ \t]+(?:x[ \t]+)?(?P<gpu>[A-Za-z][\w.-]*)")
"""A pattern for hardware that lacks the `x` before the GPU: `2x8 h100-80gb`, which is two nodes of eight GPUs."""
NODES = re.compile(r"nodes[ \t]*=?[ \t]*(?P<nodes>\d+)[ \t]*x[ \t]*\d+")
LOOKALIKES = {"−": "-", "–": "-", "‐": "-", "‑": "-", "×": " x "}
"""Maps typographic signs, such as a long dash, to the signs on the keyboard."""
CLAUSE = re.compile(r"(?:^|[ \t,({])(?P<clause>[a-z_]+)[ \t]*(?:=[ \t]*)?$")
BITS = re.compile(r"(?<![\w.])(?P<bits>[48])-?bit\b")
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
    """Rewrite what the parser reads as a malformed number: a count such as `2x`, or a GPU whose name begins with a
    digit.
    """
    nodes = NODES.search(line)
    if nodes is not None and nodes.start() <= at <= nodes.end():
        help = f"write `nodes {nodes['nodes']}`; the GPUs of one node follow `hardware`"
        return evolve(found, message="`nodes` takes one number", help=help, edits=())
    several = CARDS_OF_NODES.search(line)
    if several is not None and several.start() <= at <= several.end() and line.lstrip().startswith("hardware"):
        form = f"{several['count']} x {several['gpu']}"
        help = f"write `{form}` for one machine, and `nodes {several['nodes']}` on its own line"
        return evolve(found, message="a count is one number and one GPU", help=help, edits=())
    cards = next((one for one in CARDS.finditer(line) if one.start() <= at <= one.end()), None)
    if cards is not None and (forms := machines(cards[0])):
        edits = (Edit(Span(start + cards.start(), start + cards.end()), forms[0]),) if len(forms) == 1 else ()
        return evolve(found, help=f"write {either(forms)}", edits=edits)
    times = TIMES.search(line)
    if times is not None and times.start("count") <= at <= times.end():
        # in a setting that is not an integer, such as `alpha=2x`, the `x` probably means twice the rank
        if any(row.name == times["name"] and row.kind.name != "int" for row in TABLE):
            help = f"write the number of `{times['name']}` itself: a spec has no arithmetic"
            return evolve(found, help=help, edits=())
        return _put(found, start + times.start("count"), start + times.end(), times["count"])
    # the number before the `x` may have separators, as in `seed = 4_2x`
    if "=" in line[:at] and "hardware" not in line:
        return evolve(found, help="write the number alone, without an `x`", edits=())
    return found


def _malformed(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Correct a choice that begins with a digit and was read as a malformed number, such as `16-mixed`."""
    word = re.compile(r"[\w.-]+").match(line, at)
    clause = CLAUSE.search(line[:at]) if "=" in line[:at] else CLAUSE.match(line[:at].lstrip())
    if word is None or found.edits:  # a number such as `.1` already has an edit
        return found
    help = None if clause is None else advice(f"{clause['clause']} {word[0]}", "")
    if help is not None:
        return evolve(found, help=help)

    rows = [
        row
        for row in TABLE
        if row.choices and (row.bare if clause is None else clause["clause"] in (row.path, row.name))
    ]
    forms = {form for row in rows if (form := known_choice(row, word[0]) or choice(row, word[0])) is not None}
    return found if len(forms) != 1 else _put(found, start + at, start + word.end(), forms.pop())


def _product(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Replace typographic signs, such as `×`, by the signs on the keyboard, and `8 * h100-80gb` by a count and a
    GPU.
    """
    instead = LOOKALIKES.get(line[at : at + 1])
    if instead is not None:
        blank = instead.strip() != instead
        first = at - (blank and line[at - 1 : at] == " ")
        last = at + 1 + (blank and line[at + 1 : at + 2] == " ")
        help = f"write `{instead.strip()}`, as on the keyboard"
        return _put(found, start + first, start + last, instead, help)
    # the calculation may contain the name of another setting, as in `alpha = 2*rank`
    if not found.edits and line[at : at + 1] in "*/+^" and "=" in re.split(r"[,({]", line[:at])[-1]:
        return evolve(found, help="a spec has no arithmetic: write the value itself", edits=())
    return found


def _commas(found: Diagnostic, line: str, start: int, at: int) -> Diagnostic:
    """Rewrite a statement that begins with a number of bits (`4bit`)."""
    called = re.search(r"(?<![\w.])\d[\w.-]*$", line[:at])
    # a number of bits may stand before the name of an optimizer, as in `8bit-adam(lr=1e-5)`
    if line[at : at + 1] == "(" and called is not None:
        return evolve(_malformed(found, line, start, called.start()), message=f"`{called[0]}` is not a number")
    bits = BITS.match(line, at)
    if bits is not None and (at + len(bits[0]) == len(line.rstrip()) or line[at + len(bits[0]) :][:1] == " "):
        return _put(found, start + bits.start(), start + bits.end(), "qlora" if bits["bits"] == "4" else "lora(bits=8)")
    return found


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
    "XP022": _commas,
    "XP025": _commas,
    "XP104": _commas,
}
