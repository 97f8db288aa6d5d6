"""Rewrite a first line (`train M on D ...`) that names GPUs, is divided into several lines, or is phrased as in speech:
`please train M on D, 3 epochs, on 4 h100s`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from xpc.compiler import registry
from xpc.compiler.language.methods import METHODS
from xpc.compiler.suggest.converted_values import FILES, REPOSITORY
from xpc.compiler.suggest.lines.lists import source_lines
from xpc.compiler.suggest.lines.machines import machines_of
from xpc.compiler.suggest.lines.rewriting import findings_in, lines_with_errors, replaced
from xpc.compiler.suggest.lines.units import COUNTED
from xpc.compiler.suggest.registry_names import YOUR_GPU, either, gpus_named
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Source, Span

LONGEST = 160
"""Of the corrected first line, a help shows at most this many characters."""
VERBS = ("run", "do", "start", "launch", "fine-tune", "finetune", *METHODS)
"""If a line begins with one of these words, it is probably a first line in which `train` is missing."""
LONGEST_LINE = 1000
"""A line with more characters than this is not rewritten."""
NUMBERS = "|".join(COUNTED)
CARDS = re.compile(
    rf"[ \t]+(?P<word>on|using|with|across|over)[ \t]+(?:a[ \t]+)?"
    rf"(?:(?P<count>\d+|{NUMBERS})(?:[ \t]+|(?=x))(?:x[ \t]*)?)?"
    r"(?P<gpu>(?:(?:nvidia|tesla|rtx|geforce)[ \t]+)*[A-Za-z\d][\w.-]*(?:[ \t]+\d+[ \t]?gb)?)(?:[ \t]+gpus?)?"
    r"(?::(?P<after>\d+))?"
    r"(?=[ \t]*(?:$|#)|[ \t]+(?:with|for)\b)",
    re.IGNORECASE,
)
"""A pattern for GPUs in a first line: `on 4 h100s`, `using 8xa100-80gb`, `with h100-80gb:8`."""
COUNT = rf"(?:\d+|(?:a[ \t]+)?(?:{NUMBERS}))"
GPUS_EACH = (
    rf"(?:[ \t]+(?:with|of|x|each|having))?[ \t]+{COUNT}[ \t]*x?[ \t]*[A-Za-z][\w.-]*"
    r"(?:[ \t]+gpus?)?(?:[ \t]+each)?"
)
NODES = re.compile(
    rf"[ \t]+(?:on|using|with|across|over)[ \t]+(?P<machines>{COUNT}[ \t]*(?:nodes?|machines?)(?:{GPUS_EACH})?"
    r"|\d+[ \t]*x?[ \t]*[A-Za-z][\w.-]*[ \t]+(?:on|over|across)[ \t]+\d+[ \t]*(?:nodes?|machines?))"
    r"(?=[ \t]*(?:$|#)|[ \t]+(?:with|for)\b)",
    re.IGNORECASE,
)
"""A pattern for machines in a first line: `on 2 nodes with 8 h100-80gb each`, `on 16 h100-80gb across 2 nodes`."""
GOES_ON = re.compile(r"[ \t]*(?:on|for|with)\b")
SENTENCE = re.compile(r"^[ \t]*train\b(?!:)", re.MULTILINE)
WHOLE = 5
"""A file with at least this many lines of YAML or JSON counts as a configuration of another tool."""
IMPORT = "`xpc import` translates whole files of axolotl, LLaMA-Factory, torchtune and TRL"
PARTS = (
    re.compile(r"write `train (?P<named>\S+) on DATA`"),
    re.compile(r"write `train MODEL on (?P<named>\S+)`"),
    re.compile(r"write `(?P<named>for \d+ \w+)`"),
)
"""Patterns for helps that name one part of the first line: the model, the data, or the length."""


@record
class Rewrite:
    """A wrong first line, rewritten: the message, the help, and the edits. Without edits, the help only explains what
    to write.
    """

    message: str
    help: str
    edits: tuple[Edit, ...] = ()


def rewrite_sentences(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """If a first line has one of the forms that this module knows, replace all findings about it by one finding about
    the complete line.
    """
    out = list(problems)
    for source, start, end in islice(_lines(problems), 4):
        rewrite = next((found for form in FORMS if (found := form(source, start, end)) is not None), None)
        if rewrite is None:
            continue
        last = max(end, *(one.span.end for one in rewrite.edits)) if rewrite.edits else end
        inside = findings_in(out, source, start, end)
        if not inside:
            continue
        label = Label(source, Span(start, end))
        new = evolve(inside[0], message=rewrite.message, primary=label, help=rewrite.help, edits=rewrite.edits)
        out = replaced(out, [*inside, *findings_in(out, source, end, last)], new)
    return out


def _lines(problems: Sequence[Diagnostic]) -> Iterator[tuple[Source, int, int]]:
    """The lines with `train` that the findings are about: the source, and where the line begins and ends."""
    for source, start, end in lines_with_errors(problems, LONGEST_LINE):
        words_of = source.text[start : min(end, start + 200)].split()
        if "train" in words_of or not {*words_of[:1]}.isdisjoint(VERBS):
            yield source, start, end


def _shown(form: str) -> str:
    return f"write `{form[:LONGEST]}`"


def _after_data(line: str) -> int:
    """The position after the first `on` of a first line, where its data begins. The end of the line if it has no
    `on`.
    """
    return min(len(line), (line + " on ").find(" on ") + 4)


def _nodes(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite machines in the first line: `on 2 nodes with 8 h100-80gb each`, `on 4 nodes`."""
    line = source.text[start:end]
    found = NODES.search(line, _after_data(line) - 4)
    machines = None if found is None else machines_of(f"hardware {found['machines']}")
    if found is None or machines is None:
        return None
    help, form = machines
    message = "machines go into clauses of their own, and not into the sentence"
    if not form:
        return Rewrite(message, f"{help}, each on a line of its own" if " and `nodes" in help else help)
    edits = (Edit(Span(start + found.start(), start + found.end()), ""), Edit(Span(end, end), f"\n{form}"))
    return Rewrite(message, f"{help}, after the sentence", edits)


def _cards(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite GPUs in the first line: `train M on D with lora on 4 h100s`."""
    line = source.text[start:end]
    for found in CARDS.finditer(line, _after_data(line)):
        guess = gpus_named("-".join(found["gpu"].split()))
        # other findings report `with 8 h100`, because a count and a GPU may follow `with`, and a GPU that is certain
        certain = guess.certain and (found["count"] or found["after"])
        if not guess.names or certain or ((found["count"] or "").isdecimal() and found["word"] == "with"):
            continue
        count = found["count"] or found["after"] or "N"
        forms = [f"hardware {COUNTED.get(count, count)} x {one}" for one in guess.names]
        message = "GPUs go into a clause of their own, and not into the sentence"
        return Rewrite(message, f"write {either(forms)} on a line of its own")
    return None


SEPARATOR = r"[ \t]*(?:[+&|]|,(?:[ \t]*and\b)?|\band\b)[ \t]*"
ITEM = r"(?:\"[^\"\n]+\"|[\w./-]+(?::[\w.-]+)?)(?:[ \t]*\(?\d[\d.]*%\)?)?"
SEVERAL = re.compile(
    rf"\bon[ \t]+(?P<data>\[?[ \t]*(?P<items>{ITEM}(?:{SEPARATOR}{ITEM})+)(?:[ \t]*\])?)"
    r"(?=[ \t]*(?:$|#|,|with\b|for\b))"
)
"""A pattern for several datasets: `on alpaca+dolly-15k`, `on [alpaca, "rows.jsonl"]`."""
PART_OF = re.compile(
    r"\bon\s+(?:the\s+)?(?:first\s+)?(?P<part>\d[\d_]*%?)\s+(?:(?:rows?|samples?|examples?)\s+)?(?:of|from)\s+(?P<data>[\w./-]+)"
)
"""A pattern for a part of a dataset: `on 10% of alpaca`."""
ANY = re.compile(
    r"[ \t]+(?:on|using)[ \t]+(?:(?:a|the|one|my)[ \t]+)?(?P<device>cpu|gpus?|laptop|computer|machine|workstation)"
    r"(?:[ \t]+only)?(?=[ \t]*(?:$|#)|[ \t]+(?:with|for)\b)"
)
"""A pattern for a device that a first line names: `on cpu`, `on a gpu`."""


OWN = re.compile(r"[ \t]on[ \t]+(?:my|our|the|own|your)[ \t]+(?:own[ \t]+)?(?:data|dataset|rows|file|corpus|texts?)\b")


def _own_data(source: Source, start: int, end: int) -> Rewrite | None:
    """Handle data without a name: `train M on my data`."""
    if OWN.search(source.text, start, end) is None:
        return None
    help = 'write the path of your file in quotes, such as `on "data/rows.jsonl"`, or the id of a dataset of the hub'
    return Rewrite("the data is a file or a dataset", help)


def _device(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite the device of the run in the first line: `train M on D on cpu`."""
    line = source.text[start:end]
    found = ANY.search(line, _after_data(line))
    if found is None:
        return None
    message = "the hardware goes into a clause of its own, and not into the sentence"
    if found["device"] != "cpu":
        cpu = "" if found["device"].startswith("gpu") else "; or `hardware cpu`"
        return Rewrite(message, f"write `hardware N x GPU` on a line of its own, {YOUR_GPU}{cpu}")
    edits = (Edit(Span(start + found.start(), start + found.end()), ""), Edit(Span(end, end), "\nhardware cpu"))
    return Rewrite(message, "write `hardware cpu` on a line of its own", edits)


def _is_name(value: str) -> bool:
    known = registry.find_model(value) is not None or registry.find_dataset(value) is not None
    return known or REPOSITORY.fullmatch(value) is not None or value[:1] == '"'


def _part_of(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite a part of a dataset: `on 10% of alpaca`, `on the first 500 rows of alpaca`."""
    part = PART_OF.search(source.text, start, end)
    if part is None or " on " in source.text[start : part.start()] or part["data"] in ("the", "my", "all", "a"):
        return None
    known = registry.find_dataset(part["data"])
    rows = f"on {part['data']}[{'train' if known is None else known.split}:{part['part']}]"
    return Rewrite("a part of a split follows its dataset", f"write `{rows}`", (Edit(Span(*part.span()), rows),))


def _several(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite several datasets: `on alpaca + dolly-15k`, `on [alpaca, "mine.jsonl"]`, `on alpaca 70%, tldr 30%`."""
    found = SEVERAL.search(source.text, start, end)
    if found is None:
        return None
    items = re.split(SEPARATOR, found["items"])
    names = [re.split(r"[ \t(:*\[]", one)[0] for one in items]
    rows = source_lines(items)
    known = [_is_name(one) or FILES.fullmatch(one) for one in names]
    if not rows or not all(known[1:]) or not (known[0] or len(items) > 2 or "+" in found["items"]):
        return None
    block = "\n".join(("data rows {", *(f"  {one}" for one in rows), "}"))
    last = len(source.text.rstrip())
    edits = (Edit(Span(*found.span("data")), "rows"), Edit(Span(last, last), f"\n\n{block}"))
    shown = ", ".join(f"`{one}`" for one in rows)
    help = (
        "write `on rows`, and add a block `data rows { ... }` below that names "
        f"{shown[:LONGEST]}, each on its own line"
    )
    return Rewrite("several datasets go into a `data` block", help, edits if all(known) else ())


def _over_lines(source: Source, start: int, end: int) -> Rewrite | None:
    """Join a first line that is divided into several lines: `train M`, below it `on D`, and below it `for 3 epochs`."""
    text = source.text
    edits: list[Edit] = []
    form, last = text[start:end].rstrip(), end
    while len(edits) < 4 and last < len(text) and "#" not in form:
        below, stop = line_bounds(text, last + 1, last + 1)
        if not GOES_ON.match(text, below, stop):
            break
        line = text[below:stop].strip()
        edits.append(Edit(Span(start + len(text[start:last].rstrip()), stop - len(text[below:stop].lstrip())), " "))
        form, last = f"{form} {line}", stop
    if not edits or not form.startswith("train ") or parse(Source("line.xp", f"{form}\n"))[1]:
        return None
    return Rewrite("the sentence is one line", _shown(form), tuple(edits))


FORMS = (_own_data, _part_of, _several, _over_lines, _nodes, _cards, _device)


def of_one_sentence(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Join the findings about a model, its data and the length of the run that stand on lines of their own, as in YAML
    (`model: M`, `dataset: D`, `epochs: 3`): together they are the first line.
    """
    out = _importable(problems)
    parts = [next(((one, named) for one in out if (named := _part(one, pattern))), None) for pattern in PARTS]
    if parts[0] is None or parts[1] is None:
        return out
    source = parts[0][0].primary.source if parts[0][0].primary is not None else None
    found = [(one, named) for one, named in filter(None, parts) if one.primary and one.primary.source is source]
    if source is None or len(found) < 2 or SENTENCE.search(source.text):
        return out
    form = f"train {found[0][1]} on {found[1][1]}" + (f" {found[2][1]}" if len(found) > 2 else "")
    lines = {
        id(one): line_bounds(source.text, one.primary.span.start, one.primary.span.start)
        for one, _ in found
        if one.primary
    }
    first = min(lines.values())
    for one, _ in found:
        start, end = lines[id(one)]
        edit = Edit(Span(start, end), form) if (start, end) == first else Edit(Span(start - 1, end), "")
        out[out.index(one)] = evolve(one, help=f"{_shown(form)}, in one line", edits=(edit,))
    return out


def _importable(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Mention `xpc import` in the first finding about a file that is, as a whole, a configuration of another tool."""
    out = list(problems)
    for at, first in enumerate(out):
        source = first.primary.source if first.primary is not None else None
        if source is None or first.code != "XP014" or SENTENCE.search(source.text):
            continue
        alike = [one for one in out if one.code == "XP014" and one.primary is not None and one.primary.source is source]
        if len(alike) >= WHOLE:
            out[at] = evolve(first, help=f"{first.help}; {IMPORT}")
        break
    return out


def _part(found: Diagnostic, pattern: re.Pattern[str]) -> str:
    """The part of the first line that a help names, such as the model `qwen2.5-3b`. "" for any other help."""
    part = pattern.match(found.help or "") if found.code in ("XP014", "XP101", "XP102", "XP104") else None
    return "" if part is None or part["named"] in ("MODEL", "DATA") else part["named"]
