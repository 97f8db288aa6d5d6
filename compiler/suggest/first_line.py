"""Rewrite a first line whose model, data or length is written in another order or with other words.

`train on alpaca with qwen2.5-3b` becomes `train qwen2.5-3b on alpaca`, and `for 500 iters` becomes `for 500 steps`.
This module is loaded only for a wrong first line.
"""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.suggest.converted_values import FILES, LENGTH, REPOSITORY, unit_of
from xpc.compiler.suggest.lines.units import COUNTED
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Source, Span

TIMES = ("s", "sec", "second", "m", "min", "minute", "h", "hr", "hour", "d", "day", "week")
ROWS = ("sample", "example", "row", "prompt", "sequence")
FILLERS = words_of("first_line")
"""Words in a wrong first line that name neither a model, nor data, nor a length, such as `finetune` and `using`."""
BEFORE_DATA = ("on", "dataset", "data", "over", "from")
WORD = re.compile(r"\"[^\"]*\"|[^\s\"]+")
OPTION = re.compile(r"(?P<name>[\w.-]+)=(?P<value>\d[\d_]*$)?")
SEVERAL = re.compile(r"\bon\s+(?P<data>[\w./:@-]+(?:\s*[+&|]\s*[\w./:@-]+)+)")
"""A pattern for several datasets that are joined by `+`, `&` or `|`: `on alpaca+dolly-15k`."""
PART_OF = re.compile(
    r"\bon\s+(?:the\s+)?(?:first\s+)?(?P<part>\d[\d_]*%?)\s+(?:(?:rows?|samples?|examples?)\s+)?(?:of|from)\s+(?P<data>[\w./-]+)"
)
"""A pattern for a part of a dataset: `on 10% of alpaca`."""
LATE = re.compile(r"(?:^|(?<=\s))for\s+(?P<amount>\d+)\s+(?P<unit>epochs?|steps?)(?=\s|$)")
"""A pattern for the length of a run that is written after `with`: `with lora for 3 epochs`."""
LONGEST = 160
"""A help shows at most this many characters of the corrected line."""


def length_help(amount: str, word: str) -> tuple[str, str | None]:
    """Return a pair for a length with an unknown unit: the help, and the unit to write instead (None if it is
    unclear).
    """
    unit = unit_of(word)
    if unit is not None:
        unit = unit.removesuffix("s") if amount == "1" else unit
        return f"write `for {amount} {unit}`", unit
    one = letters(word).removesuffix("s")
    if one in TIMES:
        return "write `for 3 epochs` or `for 1000 steps`; `launch slurm(time=12h)` ends a job after a time", None
    if one.endswith("token"):
        return "write `for 1000 steps`: a step has at most gbs x seq tokens", None
    if one in ROWS:
        return "write `for 1000 steps`: a step has gbs rows", None
    return "write `for 3 epochs` or `for 1000 steps`", None


@record
class Parts:
    """The parts of a first line: the model, the data, the length, and the text after `with`. A missing
    part is empty.
    """

    model: str = ""
    data: str = ""
    length: str = ""
    options: str = ""


PIECE = re.compile(r"\"[^\"\n]*\"|\[[^\]\n]*\]|\([^()\n]*\)|#.*|,[ \t]*(?:and\b)?|:[ \t]+|[ \t]+|[^\s,:\"\[(#]+|.")
"""A pattern that splits a first line into pieces. A comma or a colon separates two pieces, unless it is inside brackets
or quotes.
"""
SOME = re.compile(r"(?<![^ ])(?:for )?(\d+ (?:epochs?|steps?))(?![^ ])")


def without_punctuation(line: str) -> str | None:
    """Rewrite a first line of a spec without the commas and colons between its settings: `with lr: 1e-4, 2 epochs`
    becomes `for 2 epochs with lr=1e-4`. None if the line has no such commas or colons, or if it has further mistakes of
    syntax.
    """
    head, word, options = line.partition(" with ")
    if not word or not head.startswith("train ") or re.search(r"\d,\d", options):
        return None  # the comma in `gbs=1,024` is part of a number
    pieces = {",": " ", ":": "="}
    text = re.sub(r" +", " ", "".join(pieces.get(one[:1], one) for one in PIECE.findall(options))).strip()
    length = None if " for " in head else SOME.search(text)
    if length is not None:
        unit = length[1].rstrip("s") + "s"
        text = f"{text[: length.start()]} {text[length.end() :]}".replace("  ", " ").strip()
        head = f"{head} for {unit}"
    form = f"{head} with {text}" if text else head
    return None if form == line or parse(Source("line.xp", form + "\n"))[1] else form


def rewrite_first_line(found: Diagnostic) -> Diagnostic:
    """The finding for a wrong first line. If its model and its data are clear, the help contains the line in the order
    of the language.
    """
    if found.code not in ("XP014", "XP020") or found.primary is None:
        return found
    text, at = found.primary.source.text, found.primary.span.start
    start, end = line_bounds(text, at, at)
    line = text[start:end].partition("#")[0].rstrip()
    if found.code == "XP014":
        several = SEVERAL.search(line)
        if several is None or not several.start("data") <= at - start < several.end("data"):
            return found
        first = re.split(r"\s*[+&|]\s*", several["data"])[0]
        help = (
            f"write `on rows`, and add a block `data rows {{ ... }}` below that names `{first}` and the others, each "
            "on its own line"
        )
        return evolve(found, message="several datasets go into a `data` block", help=help, edits=())
    part = PART_OF.search(line)
    if part is not None:
        known = registry.find_dataset(part["data"])
        rows = f"on {part['data']}[{'train' if known is None else known.split}:{part['part']}]"
        edits = (Edit(Span(start + part.start(), start + part.end()), rows),)
        return evolve(found, message="a part of a split follows its dataset", help=f"write `{rows}`", edits=edits)
    form = sentence_of(without_punctuation(line) or line)
    if form is None or form == line.strip() or parse(Source("line.xp", f"{form}\n"))[1]:
        return found
    return evolve(found, help=f"write `{form[:LONGEST]}`", edits=(Edit(Span(start, start + len(line)), form),))


def sentence_of(line: str) -> str | None:
    """Rewrite a first line in the order `train MODEL on DATA for LENGTH with OPTIONS`. None if the parts of the line
    are unclear.
    """
    parts = parsed(line)
    if parts is None:
        return None
    length = re.sub(r"^1 (epoch|step)s$", r"1 \1", parts.length)
    form = f"train {parts.model} on {parts.data}" + (f" for {length}" if length else "")
    return form + (f" with {parts.options}" if parts.options else "")


def parsed(line: str) -> Parts | None:
    """Divide a first line into its parts. None if it contains a word that is not understood, or if it does not name
    exactly one model and one dataset.
    """
    words = WORD.findall(line)
    if not words or words[0] not in FILLERS:
        return None
    head, options = _without_options(words)
    head = [word.rstrip(",") or word for word in head]
    model, data, length = "", "", ""
    open_names: list[tuple[str, str]] = []
    before = ""
    at = 0
    while at < len(head):
        word = head[at]
        given = OPTION.fullmatch(word)
        # the length may be written as a setting, such as `epochs=3`
        if given is not None and not length and (unit := unit_of(given["name"])) is not None:
            length, at = f"{given['value']} {unit}", at + 1
            continue
        measured = LENGTH.fullmatch(str(COUNTED.get(word.lower(), word)))
        if measured is not None:
            follows = measured[2] or (head[at + 1] if at + 1 < len(head) else "")
            unit = unit_of(follows) if follows else None
            if unit is None or length:
                return None
            length = f"{measured[1]} {unit}"
            at += 1 if measured[2] else 2
            continue
        if registry.find_model(word) is not None and not model:
            model = word
        elif (registry.find_dataset(word) is not None and not data) or (_is_rows(word) and not data):
            data = word
        elif word[:1] == '"' or REPOSITORY.fullmatch(word):
            open_names.append((before, word))
        elif word.lower() not in FILLERS:
            return None
        before, at = word, at + 1
    for role, word in open_names:
        if not data and (model or role in BEFORE_DATA):
            data = word
        elif not model:
            model = word
        else:
            return None
    # the length may follow the settings, as in `with lora for 3 epochs`
    late = LATE.search(options) if not length else None
    if late is not None:
        options = f"{options[: late.start()].rstrip()} {options[late.end() :].lstrip()}".strip()
        length = f"{late['amount']} {unit_of(late['unit']) or 'epochs'}"
    return Parts(model, data, length, options) if model and data else None


def _without_options(words: list[str], first: bool = True) -> tuple[list[str], str]:
    """Return a pair: the words before the settings, and the text of the settings. Usually, the settings follow the word
    `with`. A `with` before a model or a dataset does not count. If `first` is true, the settings may also stand before
    the data: `train M with lora on D`.
    """
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        named = registry.find_model(after) or registry.find_dataset(after) or _is_rows(after)
        if word in ("with", "using", "via") and not named and not REPOSITORY.fullmatch(after) and after[:1] != '"':
            rest = words[at + 1 :]
            on = next((i for i, one in enumerate(rest[:-1]) if one == "on" and _is_data(rest[i + 1])), None)
            if on is None or not first:
                return words[:at], " ".join(rest)
            head, after = _without_options(rest[on:], first=False)
            return words[:at] + head, " ".join(filter(None, (*rest[:on], after)))
        option = OPTION.match(word)
        if option is not None and not (option["value"] and unit_of(option["name"])):
            return words[:at], " ".join(words[at:])
    return words, ""


def _is_data(word: str) -> bool:
    return _is_rows(word) or registry.find_dataset(word) is not None or REPOSITORY.fullmatch(word) is not None


def _is_rows(word: str) -> bool:
    return word[:1] == '"' and FILES.fullmatch(word.strip('"')) is not None


def sentence_with_verb(unknown: UnknownName) -> str | None:
    """Rewrite a first line that begins with another verb, such as `finetune`; None for any other line."""
    if unknown.name not in FILLERS:
        return None
    source, start = unknown.label.source, unknown.label.span.start
    return sentence_of(source.text[start : line_bounds(source.text, start, start)[1]].partition("#")[0].rstrip())
