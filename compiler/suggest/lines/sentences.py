"""Rewrite a first line (`train M on D ...`) that names GPUs, is divided into several lines, or is phrased as in speech:
`please train M on D, 3 epochs, on 4 h100s`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler import registry
from xpc.compiler.language.methods import METHODS
from xpc.compiler.suggest.converted_values import FILES, REPOSITORY, unit_of
from xpc.compiler.suggest.first_line import sentence_of, without_punctuation
from xpc.compiler.suggest.likeness import words
from xpc.compiler.suggest.lines.header import with_settings
from xpc.compiler.suggest.lines.machines import machines_of
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
SPOKEN = re.compile(r"[ \t]*(?P<before>(?:(?!train\b)[A-Za-z',]+[ \t]+){1,6})(?=train[ \t])")
PAIR = re.compile(r"[ \t]+(?:--?)?(?P<name>[A-Za-z][\w.-]*)[ \t]*[= \t:][ \t]*(?P<value>\"[^\"\n]*\"|[^\s=\"]+)")
GOES_ON = re.compile(r"[ \t]*(?:on|for|with)\b")
EVERY = re.compile(
    r"\b(?P<clause>evaluat(?:e|ing|ion)|evals?|validat(?:e|ion)|sav(?:es?|ing)|checkpoint(?:s|ing)?"
    r"|log(?:s|ging)?|track)[ \t]+"
    r"(?:every|each)[ \t]+"
    r"(?:(?P<count>\d+%?)(?:[ \t]+(?P<unit>steps?|epochs?))?|(?P<once>epoch))(?![\w.=])"
)
CLAUSES = {"e": "eval", "v": "eval", "s": "save", "c": "save", "l": "track", "t": "track"}
"""Maps the first letter of a word for a regular event to the event's clause: `evaluate` and `validate` to `eval`, for
example.
"""
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
    for source, start, end in _lines(problems):
        rewrite = next((found for form in FORMS if (found := form(source, start, end)) is not None), None)
        if rewrite is None:
            continue
        last = max(end, *(one.span.end for one in rewrite.edits)) if rewrite.edits else end
        first = next((at for at, one in enumerate(out) if _is_in(one, source, start, end)), None)
        if first is None:
            continue
        label = Label(source, Span(start, end))
        new = evolve(out[first], message=rewrite.message, primary=label, help=rewrite.help, edits=rewrite.edits)
        out = [new if at == first else one for at, one in enumerate(out)
               if at == first or not _is_in(one, source, start, last)]  # fmt: skip
    return out


def _is_in(one: Diagnostic, source: Source, start: int, end: int) -> bool:
    return one.primary is not None and one.primary.source is source and start <= one.primary.span.start <= end


def _lines(problems: Sequence[Diagnostic]) -> Iterator[tuple[Source, int, int]]:
    """The lines with `train` that the findings are about. Yields the source, and the first and last position of each
    line.
    """
    seen: set[tuple[str, int]] = set()
    for one in problems:
        if one.primary is None or one.code[:3] not in ("XP0", "XP1") or len(seen) > 3:
            continue
        source, at = one.primary.source, one.primary.span.start
        start, end = line_bounds(source.text, at, at)
        if end - start > LONGEST_LINE:
            continue
        words_of = source.text[start : min(end, start + 200)].split()
        if (source.name, start) not in seen and ("train" in words_of or not {*words_of[:1]}.isdisjoint(VERBS)):
            seen.add((source.name, start))
            yield source, start, end


def _is_legal(sentence: str) -> bool:
    return not parse(Source("line.xp", sentence + "\n"))[1]


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
        # another finding reports `with 8 h100`, because a count and a GPU may follow `with`
        if not guess.names or ((found["count"] or "").isdecimal() and found["word"] == "with"):
            continue
        count = found["count"] or found["after"] or "N"
        count = str(COUNTED.get(count, count))
        message = "GPUs go into a clause of their own, and not into the sentence"
        forms = [f"hardware {count} x {one}" for one in guess.names]
        if not guess.certain or count == "N":
            return Rewrite(message, f"write {either(forms)} on a line of its own")
        form = forms[0]
        edits = (Edit(Span(start + found.start(), start + found.end()), ""), Edit(Span(end, end), f"\n{form}"))
        return Rewrite(message, f"write `{form}` on a line of its own", edits)
    return None


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


def _spoken(source: Source, start: int, end: int) -> Rewrite | None:
    """Drop words before `train`: `please train M on D`."""
    found = SPOKEN.match(source.text, start, end)
    if found is None or not _is_legal(source.text[found.end() : end]):
        return None
    before = found["before"].strip()
    edits = (Edit(Span(*found.span("before")), ""),)
    return Rewrite("the sentence begins with `train`", f"leave `{before[:60]}` out", edits)


def _values(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite names with values instead of words: `train --model M --dataset D`, `train model=M data=D`."""
    text, at = source.text, start + len("train")
    if not text.startswith("train", start):
        return None
    model = data = length = ""
    options: list[str] = []
    while text[at:end].partition("#")[0].strip():
        found = PAIR.match(text, at, end)
        if found is None:
            return None
        named, value = frozenset(words(found["name"])), found["value"]
        named_as_data = not named.isdisjoint(("data", "dataset", "datasets"))
        if not named.isdisjoint(("model", "base")) and not model and _is_name(value):
            model = value
        elif named_as_data and not data and _is_name(value):
            data = value
        elif not length and (unit := unit_of(found["name"])) is not None and value.isdecimal():
            length = f" for {value} {unit}"
        else:
            options.append(f"{found['name'].replace('-', '_')}={value}")
        at = found.end()
    form = f"train {model} on {data}{length}" + (f" with {' '.join(options)}" if options else "")
    if not model or not data or not _is_legal(form):
        return None
    return Rewrite("the sentence is `train MODEL on DATA`", _shown(form), (Edit(Span(start, end), form),))


def _is_name(value: str) -> bool:
    known = registry.find_model(value) is not None or registry.find_dataset(value) is not None
    return known or REPOSITORY.fullmatch(value) is not None or value[:1] == '"'


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
    if not edits or not form.startswith("train ") or not _is_legal(form):
        return None
    return Rewrite("the sentence is one line", _shown(form), tuple(edits))


def _without_with(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite settings after a comma: `train M on D, 3 epochs, lr 2e-5`."""
    line = source.text[start:end].partition("#")[0].rstrip()
    head, comma, rest = line.partition(",")
    pieces = [one.strip() for one in re.split(r",|\band\b", rest)]
    named = any(
        registry.find_dataset(one) is not None or REPOSITORY.fullmatch(one) or FILES.fullmatch(one.strip('"'))
        for one in (piece.partition(" ")[0] for piece in pieces)
    )
    if not comma or named or " with " in head or not re.fullmatch(r"train\s+\S+\s+on\s+\S+(\s+for\s+\d+\s+\w+)?", head):
        return None
    form = without_punctuation(f"{head} with {rest.strip()}")
    if form is None:
        return None
    edits = (Edit(Span(start, start + len(line)), form),)
    return Rewrite("choices and settings go after `with`", _shown(form), edits)


def _regularly(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite regular events in words: `with eval every 100 steps` becomes `with eval(every=100)`."""
    found = EVERY.search(source.text, start, end)
    if found is None or " with " not in source.text[start : found.start()]:
        return None
    unit = (found["unit"] or "").removesuffix("s")
    if unit == "epoch" and found["count"] != "1":
        return None
    form = f"{CLAUSES[found['clause'][0]]}(every={'epoch' if unit == 'epoch' or found['once'] else found['count']})"
    edits = (Edit(Span(*found.span()), form),)
    return Rewrite(f"`{found[0]}` is not a setting of the language", f"write `{form}`", edits)


def _with_verb(source: Source, start: int, end: int) -> Rewrite | None:
    """Rewrite a first line that begins with other words than `train`: `run sft of M on D`."""
    line = source.text[start:end].partition("#")[0].rstrip()
    verb = line.partition(" ")[0]
    method = verb if verb in METHODS and verb != "sft" else ""
    # without `on`, another finding reports the verb: `finetune M using "rows.jsonl"`
    known = verb in VERBS and (" on " in line or "tune" not in verb)
    form = sentence_of(f"train{line[len(verb) :]}" if method else line) if known else None
    form = f"{form} {'' if ' with ' in form else 'with '}{method}" if form and method else form
    form = form and (with_settings(form) or form)
    if form is None or not _is_legal(form):
        return None
    return Rewrite("the sentence begins with `train`", _shown(form), (Edit(Span(start, start + len(line)), form),))


FORMS = (_own_data, _with_verb, _over_lines, _spoken, _values, _nodes, _cards, _device, _regularly, _without_with)


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
