"""Join values that the parser did not read beyond their first word: lists without brackets (`targets = q_proj,
v_proj`), texts without quotes, and a number with words (`warmup = 5 pct`). Loaded only for such a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.language.schema import CLAUSES, TABLE, Setting, bare_choices
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span
from xpc.grammar.tree import Call
from xpc.grammar.tree import Setting as Assigned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.items import Item
    from xpc.grammar.tree import Value

PERCENT = ("pct", "percent", "perc", "percents")
NAMES = frozenset((*CLAUSES, *bare_choices(), *(row.name for row in TABLE)))
WORDS = re.compile(r"(?:[ \t]+[\w.%-]+)+(?=[ \t]*(?:[,)}#\n]|$))")
"""Matches the words of a value after its first word, up to the end of the setting."""
ITEM = re.compile(r"(?:[ \t]*,[ \t]*|[ \t]+)[A-Za-z_][\w.]*(?![\w.]*[ \t]*[=({])")
"""Matches the second or a later item of a list without brackets: `, v_proj` in `targets = q_proj, v_proj`."""
VALUED = re.compile(r"\b(?P<name>\w+)[ \t]*=[ \t]*(?P<value>[\w.-]+)")
LISTS, TEXTS = ("names", "targets", "tasks", "reals"), ("text", "name")
"""Kinds of settings: LISTS are those whose value is a list of names, and TEXTS those whose value is a text."""
OF_ROWS, OF_TOKENS = ("gbs", "micro", "take", "holdout"), ("seq", "max_prompt", "max_completion", "max_tokens")
COUNTED_BY = (
    dict.fromkeys(("sequence", "seq", "sample", "example", "row", "item"), OF_ROWS)
    | dict.fromkeys(("tok", "token"), OF_TOKENS)
    | {"step": ("warmup", "decay", "every")}
)
"""Maps a noun to the settings that count such things. For example, `gbs = 64 sequences` counts sequences, so `sequence`
is mapped to `gbs` and the other settings that count rows.
"""
NUMERALS = re.compile(r"(?:[ \t]*,[ \t]*|[ \t]+)\d[\d.]*(?:[eE][+-]?\d+)?(?![\w.%]*[ \t]*[=({])")
NUMERAL = re.compile(r"\d[\d.]*(?:[eE][+-]?\d+)?")
NEAR = 300
"""Only this many characters are searched for further words of a value, because a hostile file may have lines of
thousands of words.
"""
MACHINE = ("gpu", "device", "card", "rank", "process", "worker")


@record
class JoinedValue:
    """A value of several words or items: its position in the source, and the text to write for it (`form`)."""

    span: Span
    form: str


def following(row: Setting, text: str, span: Span) -> JoinedValue | None:
    """The complete value, if the parser read only its first word: a list without brackets (`targets = q_proj, v_proj`)
    or a text without quotes (`name = my run`). None for any other value.
    """
    start, end = line_bounds(text, span.start, span.start)
    listed = row.kind.name in (*LISTS, "weighted")
    chosen = row.kind.name == "choice" and not row.head
    pattern = NUMERALS if row.kind.name == "reals" else ITEM if listed else None
    pattern = WORDS if chosen or row.kind.name in TEXTS else pattern
    inside = not text[start : span.start].rpartition("=")[0].strip().isidentifier()
    words, at = [text[span.start : span.end]], span.end
    while pattern is not None and (item := pattern.match(text, at, end)) is not None:
        one = item[0].strip(" \t,").split()
        if not chosen and not all(_is_item(row, word, inside) for word in one):
            break
        words, at = [*words, *one], item.end()
    if len(words) == 1:
        return None
    if chosen:
        from xpc.compiler.suggest.known_names import known_choice

        form = known_choice(row, " ".join(words))
        return None if form is None else JoinedValue(Span(span.start, at), form)
    return JoinedValue(Span(span.start, at), f"[{', '.join(words)}]" if listed else f'"{" ".join(words)}"')


def _is_item(row: Setting, word: str, inside: bool) -> bool:
    """Whether a word can be a further item of a value. If `inside` is true, the value stands in a call or in a block on
    one line, where the word may also be the name of the next setting.
    """
    from xpc.compiler.suggest.converted_values import methods_with
    from xpc.compiler.suggest.meaning import is_known

    if row.kind.name == "weighted":
        return word in REWARDS or bool(methods_with(word))
    return not inside or not (word in NAMES or is_known(word, loosely=False))


def join_values(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace the findings about the second and later words of a value, as in `targets = q_proj, v_proj`, by one
    finding about the complete value. If the conversion of values reports the complete value anyway, these findings are
    dropped without a replacement.
    """
    out: list[Diagnostic] = []
    shown: set[tuple[str, int]] = set()
    problems = _of_words(problems)
    for found in problems:
        label = found.primary
        second = found.code in _SECOND or found.message.endswith("is a value without a setting")
        value = None if label is None or not second else _value_at(label.source.text, label.span.start)
        if value is None or label is None:
            out.append(found)
            continue
        row, joined = value
        later = row.kind.name in (*LISTS, *TEXTS, "choice") and found.code not in ("XP023", "XP025")
        location = (label.source.name, joined.span.start)
        if not later and location not in shown:
            help = f"write `{row.name} = {joined.form}`"
            message = f"`{row.name}` takes {row.kind.phrase}"
            out.append(evolve(found, message=message, help=help, edits=(Edit(joined.span, joined.form),)))
        shown.add(location)
    return out


_SECOND = ("XP022", "XP023", "XP024", "XP025", "XP101", "XP102")
"""Codes of the findings that the second word of a value may cause, as in `name = my run`."""


@cache
def _settings() -> dict[str, list[Setting]]:
    """Map each name to the settings with this name whose value is written after `=`, as in `gbs = 8`."""
    out: dict[str, list[Setting]] = {}
    for row in TABLE:
        if not row.head:
            out.setdefault(row.name, []).append(row)
    return out


def _value_at(text: str, at: int) -> tuple[Setting, JoinedValue] | None:
    """Find the value that contains the word at offset `at`. Returns a pair: the setting, and the complete value. None
    if no value contains the word.
    """
    start, _ = line_bounds(text, at, at)
    for found in VALUED.finditer(text, max(start, at - NEAR), at):
        for row in _settings().get(found["name"], ()):
            joined = following(row, text, Span(*found.span("value")))
            if joined is not None and at < joined.span.end:
                return row, joined
    return None


UNITS = {
    "step": ("every", "steps_or_share"),
    "epoch": ("every", "steps_or_share", "real"),
    "token": ("tokens",),
    "percent": ("every", "share", "steps_or_share", "real_or_share", "rows_or_share", "real"),
} | dict.fromkeys(("row", "sample", "example"), ("rows_or_share", "int"))
"""Maps a unit to the kinds of settings that may have it. Every other unit is one of time."""


def may_have(row: Setting, word: str) -> bool:
    """Whether the value of a setting may have the unit `word`: `steps` is possible for `warmup`, but not for `rank`."""
    unit = word.lower().removesuffix("s")
    named = unit == "step" and row.doc.startswith("steps")
    return named or row.kind.name in UNITS.get(unit, ("duration", "every"))


def _without_unit(found: Diagnostic) -> Diagnostic:
    """Drop the edit of a finding about a number with a unit that its setting cannot have: `lr = 100 steps`."""
    parts = re.fullmatch(r"a value is one word, and `(\S+) (\w+)` is two", found.message)
    if parts is None or found.primary is None or not found.edits:
        return found
    text, at = found.primary.source.text, found.edits[0].span.start
    before = re.search(r"(\w+)[ \t]*=[ \t]*$", text[max(0, at - NEAR) : at])
    rows = [row for row in TABLE if before is not None and row.name == before[1]]
    if not rows or any(may_have(row, parts[2]) for row in rows):
        return found
    return evolve(found, help=f"`{rows[0].name}` takes {rows[0].kind.phrase}, without `{parts[2]}`", edits=())


def _of_words(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace the findings about a number and the words after it, as in `warmup = 5 pct`, by one finding."""
    out: list[Diagnostic] = []
    locations: list[tuple[str, Span]] = []
    for found in map(_without_unit, problems):
        joined = _counted_words(found)
        out.append(found if joined is None else joined[0])
        if joined is not None and found.primary is not None:
            locations.append((found.primary.source.name, joined[1]))
    return [one for one in out if one.code not in ("XP101", "XP102", "XP024") or not _is_inside(one, locations)]


def _is_inside(found: Diagnostic, locations: list[tuple[str, Span]]) -> bool:
    """Whether a finding is about a later word of a value, and not about its first word. `locations` are the places of
    the values. False for a finding about a complete value.
    """
    label = found.primary
    return label is not None and not found.message.startswith("a value is one word") and any(
        name == label.source.name and span.start < label.span.start < span.end for name, span in locations
    )  # fmt: skip


def _counted_words(found: Diagnostic) -> tuple[Diagnostic, Span] | None:
    """The finding for a value of several words, such as `micro=4 per gpu`, and the place of this value. None if the
    word after the number is the next setting, so that only the comma before it is missing.
    """
    ended = ("expected `,`", "expected the end of the line after this setting")
    if found.primary is None or not found.message.startswith(ended):
        return None
    text, at = found.primary.source.text, found.primary.span.start
    start, _ = line_bounds(text, at, at)
    before = re.search(r"(?P<name>\w+)[ \t]*=[ \t]*(?P<value>\d[\w.%+-]*)[ \t]*$", text[start:at])
    words = WORDS.match(text, start + before.end("value")) if before is not None else None
    if before is None or words is None:
        return None
    rest, value = words[0].split(), before["value"]
    rest = rest[1:] if rest[0] in ("optimizer", "update", "training", "global") and rest[1:] == ["steps"] else rest
    if (rest[0] in NAMES and rest not in (["tokens"], ["steps"])) or NUMERAL.fullmatch(rest[0]):
        return None
    message = f"a value is one word, and `{value} {' '.join(rest)}` is {len(rest) + 1} words"
    span = Span(start + before.start("value"), words.end())
    if rest[0] in ("per", "a", "each") and rest[-1].removesuffix("s") in MACHINE:
        help = f"write `micro={value}` for the sequences of one process, or the total as `gbs`"
        return evolve(found, message=message, help=help, edits=()), span
    if rest == ["tokens"] and before["name"] in ("gbs", "micro", "accum"):
        help = f"write the tokens divided by `seq`: `{before['name']}` counts sequences"
        return evolve(found, message=message, help=help, edits=()), span
    if before["name"] == "hardware":
        from xpc.compiler.suggest.registry_names import either, gpus_named

        forms = [f"{value} x {one}" for one in gpus_named(rest[0]).names] or [f"{value} x {rest[0]}"]
        edits = (Edit(span, forms[0]),) if len(forms) == 1 else ()
        return evolve(found, message=message, help=f"write {either(forms)}", edits=edits), span
    exponent = re.fullmatch(r"[eE][+-]?\d+", rest[0])
    if value[-1] in "kK" and before["name"] in OF_TOKENS:
        help = f"write {float(value[:-1]) * 1024:.0f}, {value[:-1]}Ki or {float(value[:-1]) * 1000:.0f}"
        return evolve(found, message=message, help=help, edits=()), span
    if len(rest) == 1 and before["name"] in COUNTED_BY.get(rest[0].lower().removesuffix("s"), ()):
        return evolve(found, message=message, help=f"write `{value}`", edits=(Edit(span, value),)), span
    share = rest in ([one] for one in PERCENT) or rest == ["per", "cent"]
    if value.endswith("%") and rest[0] == "of":
        return evolve(found, message=message, help=f"write `{value}`", edits=(Edit(span, value),)), span
    if not (share or (exponent and len(rest) == 1)):
        return evolve(found, message=message, help=f"leave `{' '.join(rest)}` out", edits=()), span
    form = value + rest[0] if exponent else f"{value}%"
    return evolve(found, message=message, help=f"write `{form}`", edits=(Edit(span, form),)), span


def call_of_python(row: Setting, item: Item, node: Value | None, typed: str) -> tuple[str] | None:
    """The help for `optimizer = AdamW(lr=1e-5)` and `lora = dict(rank=8)`: a clause with its settings."""
    if not isinstance(node, Call) or not row.head or not node.args:
        return None
    from xpc.compiler.suggest.meaning import choice

    chosen = choice(row, node.name.text.rpartition(".")[2]) if row.choices else None
    if chosen == node.name.text or (chosen is None and node.name.text != "dict"):
        return None
    settings = [item.label.source.slice(one.span) for one in node.args if isinstance(one, Assigned)]
    arguments = f"({', '.join(settings)})" if settings else ""
    return (f"write `{row.name}{'' if chosen is None else f' {chosen}'}{arguments}`",)
