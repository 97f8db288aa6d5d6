"""Find values in the notation of another tool in lines with errors, and rewrite them: `lr = 2 * 10^-5`. Imported only
for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from xpc.compiler.language import schema
from xpc.compiler.suggest.joined_values import takes
from xpc.compiler.suggest.lines.notations import LISTS, NUMBERS, by_patterns, holdout_help, is_legal, machines, notation
from xpc.compiler.suggest.lines.rewriting import findings_in, lines_with_errors, replaced
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.no_equivalent import no_such_choice, pair_advice
from xpc.compiler.suggest.registry_names import YOUR_GPU, either, gpu
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

VALUED = re.compile(r"(?<![\w.\"'])(?P<name>[a-z_0-9]+)(?P<sign>[ \t]*[=:][ \t]*(?=[^\s=:])|[ \t]+(?=[^\s=(){]))")
STOP = re.compile(
    r"[ \t]+#|[ \t]*[,;][ \t]*[a-z_]\w*[ \t]*[=({]|(?:[ \t]+and)?[ \t]+[a-z_]\w*[ \t]*(?:=|[({](?!\d))"
    r"|[ \t]+(?P<word>[a-z]\w*)(?![\w.])"
    r"|[ \t]*,[ \t]*(?P<item>[a-z_]\w*)[ \t]*(?=[,)}])"
)
"""A pattern for the end of a value: a comment, the next setting, or a word that may be a setting."""
CALLED = re.compile(r"(?P<name>[\w.]+)[ \t]*\([^()]*$")
SENTENCE = re.compile(
    r"train[ \t]+(?P<model>\S.*?)[ \t]+on[ \t]+(?P<data>\S.*?)(?=[ \t]+(?:for|with)[ \t]|[ \t]*(?:#|$))", re.M
)
LENGTH = re.compile(r"(?<=for)[ \t]+(?P<amount>\S(?:[^=\n]{0,20}\S)?)(?P<sign>[ \t]+)(?P<name>epochs|steps)\b")
ONE_OF_SEVERAL = r"\d[\d.]*(?:e[+-]?\d+)?"
SEPARATOR = r"(?:[ \t]*[,;|][ \t]*|[ \t]+(?:(?:or|and|-)[ \t]+)?|(?<![eE])-)"
SEVERAL = re.compile(rf"(?!\d+-\d+-){ONE_OF_SEVERAL}(?:{SEPARATOR}{ONE_OF_SEVERAL})+")
NAMES = re.compile(r"[A-Za-z_][\w.-]*(?:[ \t]*,[ \t]*[A-Za-z_][\w.-]*)+")
PLAIN = ("int", "path", "choice", "choices", "hardware")
"""Kinds of clauses whose value follows without `=`: `nodes 2`, `save \"out\"`."""
ADDED = re.compile(r"[\w.-]+\+[\w.+-]*")
OF_GPUS = ("hardware", "gpu", "gpus", "device", "devices", "card", "cards")
UNKNOWN = ("XP101", "XP102")


def rewrite_values(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace the findings inside of a value of another notation, such as `lr = 2 * 10^-5`, by one finding about the
    complete value.
    """
    out, done = list(problems), set[tuple[str, int]]()
    for source, start, end in lines_with_errors(problems):
        for span, known in _names(source.text, start, end):
            if inside := findings_in(out, source, span.start, span.end):
                edits = (Edit(span, known),)
                new = evolve(inside[0], primary=Label(source, span), help=f"write `{known}`", edits=edits)
                out = replaced(out, inside, new)
        for name, span in _values(source.text, start, end):
            place = (source.name, name.start())
            inside = findings_in(out, source, name.start(), span.end) if place not in done else []
            inside = [one for one in inside if one.code != "XP103" or name["name"] in OF_GPUS]
            if not inside:
                continue
            called = _is_called(name, source.text[start : name.start()], inside)
            form = None if called is None else _form(name, source, span, called)
            typed, rows = source.text[span.start : span.end], _rows(name)
            if form is not None:
                done.add(place)
                out = replaced(out, inside, _rewritten(inside[0], name, source, span, form, called is True))
            elif rows and SEVERAL.fullmatch(typed) and all(row.kind.name in NUMBERS for row in rows):
                out = replaced(out, inside, _sweep(inside[0], name["name"], source, span))
            elif inside[0].code != "XP112" and (
                help := _help(name["name"], typed, rows, source.text[start : name.start()])
            ):
                out = replaced(out, inside, evolve(inside[0], primary=Label(source, span), help=help, edits=()))
    return out


def _help(name: str, typed: str, rows: Sequence[schema.Setting], before: str) -> str:
    """The help for a value that no single setting has: a sum of choices, a number as a split, several names where one
    is possible, or GPUs of which there are several kinds or none. "" for any other value.
    """
    if rows and rows[0].choices and ADDED.fullmatch(typed):  # `method reinforce++`, `method sft+lora`
        each = typed.split("+")
        if {*each}.issubset((*schema.bare_choices(), *schema.ADAPTERS)):
            return f"write {' and '.join(f'`{one}`' for one in each)}, each on a line of its own"
        return f"{no_such_choice(rows[0].name, typed)}write one of {', '.join(rows[0].choices)}"
    if name not in OF_GPUS:
        one = not {*"({"} & {*before} and all(
            row.kind.name in ("name", "text", "choice") for row in schema.TABLE if row.name == name
        )
        split = holdout_help(typed) if name == "split" else ""
        others = {*re.split(r"[ \t]*,[ \t]*", typed)[1:]}.isdisjoint(schema.outer_names())  # `bf16, tf32`
        return split or (takes(name) if one and others and NAMES.fullmatch(typed) else "")
    if SEVERAL.fullmatch(typed):  # `devices 0, 1`
        count = len(re.split(SEPARATOR, typed))
        return f"write `hardware {count} x GPU`, {YOUR_GPU}; CUDA_VISIBLE_DEVICES chooses the cards"
    if len(forms := machines(typed)) > 1:
        return f"write {either(f'hardware {one}' for one in forms)}"
    card = re.fullmatch(r"\d+ x ((?!x-)[A-Za-z][\w. -]*)", by_patterns("hardware", "hardware", typed))
    why = "" if card is None or forms or " x " not in typed else gpu(card[1].replace(" ", "-"))[1]
    return f"`{card[1]}` is not a GPU of the registry: {why}" if card is not None and why else ""


def _is_called(name: re.Match[str], before: str, inside: Sequence[Diagnostic]) -> bool | None:
    """Whether a setting stands in the brackets of a call, as in `cosine(warmup 3%)`. None if the call or the setting
    has an unknown name, which another finding reports. `before` is the line before the setting.
    """
    before = re.sub(r"\([^()]*\)", "", before).rstrip()
    call = CALLED.search(before)
    at = [one.primary.span.start for one in inside if one.primary is not None and one.code in UNKNOWN]
    if (call is not None and call["name"] not in _called()) or name.start() in at:
        return None
    return call is not None and before[-1] in "(,"


def _rewritten(
    found: Diagnostic, name: re.Match[str], source: Source, span: Span, form: str, called: bool
) -> Diagnostic:
    """The finding about a value, for which `form` is to be written."""
    head = _rows(name)[0].head and "(" in form  # a clause with settings has no `=`
    sign = " " if head else "=" if called else " = " if "=" in name["sign"] else " "
    whole = span if not head and ("=" in name["sign"] or not called) else Span(name.start(), span.end)
    text = f"{name['name']}{sign}{form}" if name.re is VALUED else f"for {form} {name['name']}"
    edits = (Edit(whole, form if whole is span else text),)
    share = ", a share of the complete run" if form[-1] == "%" and "ep" in source.text[span.start : span.end] else ""
    return evolve(found, primary=Label(source, whole), help=f"write `{text}`{share}", edits=edits)


def _names(text: str, start: int, end: int) -> Iterator[tuple[Span, str]]:
    """The model and the data of a first line, if they are written in another notation: `hf://org/name`."""
    line = SENTENCE.match(text, start, end)
    if line is None:
        return
    for role in ("model", "data"):
        form = by_patterns(role, role, line[role])
        if form != line[role] and not parse(Source("line.xp", f"train m on {form}\n"))[1]:
            yield Span(*line.span(role)), form


def _sweep(found: Diagnostic, name: str, source: Source, span: Span) -> Diagnostic:
    """The finding for several numbers without brackets: a list of a sweep, or a setting that takes one number."""
    form, label = f"[{', '.join(re.split(SEPARATOR, source.text[span.start : span.end]))}]", Label(source, span)
    if re.search(r"\bsweep\b[^}]*$", source.text[: span.start]):
        return evolve(found, primary=label, help=f"write `{name} = {form}`", edits=(Edit(span, form),))
    if (both := pair_advice(name, form)) != "":  # `eps_clip = 0.2, 0.28`
        return evolve(found, message=f"`{name}` takes one number", primary=label, help=both, edits=())
    help = f"several values make several runs: write `sweep {{ {name} = {form} }}` outside of its block"
    return evolve(found, message=f"`{name}` takes one number", primary=label, help=help, edits=())


@cache
def _called() -> frozenset[str]:
    """Names that may stand before settings in brackets: of clauses, settings and choices."""
    return frozenset((*schema.CLAUSES, *(word for row in schema.TABLE for word in (row.name, *row.choices))))


def _form(name: re.Match[str], source: Source, span: Span, called: bool) -> str | None:
    """The value in xpc's notation. None if it is unclear, or if nothing is wrong with it. In a call such as
    `cosine(warmup 3%)`, the value may follow the name without `=`.
    """
    typed = source.text[span.start : span.end]
    unsigned = "=" not in name["sign"]
    plain = not unsigned or called or name.re is LENGTH
    if (":" in name["sign"] and not called) or (unsigned and "=" in typed):  # a line of YAML, or another setting
        return None
    rows = [one for one in _rows(name) if plain or (one.head and one.kind.name in PLAIN)]
    forms = {notation(row, typed, source.text) for row in rows}
    if unsigned and called and rows and all(is_legal(row, typed) for row in rows if not row.choices):
        forms = {typed}
    forms -= {None}  # `every` is also the name of a setting that counts only steps
    return forms.pop() if len(forms) == 1 else None


def _rows(name: re.Match[str]) -> list[schema.Setting]:
    """The settings with a name, or else the setting for which it is another tool's name."""
    return _rows_of(name["name"], "=" in name["sign"])


@cache
def _rows_of(name: str, assigned: bool) -> list[schema.Setting]:
    rows = [one for one in (*schema.TABLE, *schema.SOURCE_SETTINGS.values()) if one.name == name]
    known = meaning(name, exact=True) if assigned and not rows else None
    row = None if known is None or known.value else schema.BY_PATH.get(known.path)
    return rows or ([] if row is None or row.kind.name not in (*NUMBERS, "reals", "duration", "rope") else [row])


def _values(text: str, start: int, end: int) -> Iterator[tuple[re.Match[str], Span]]:
    """The values of settings in a line: a match of the setting's name, and the position of the value."""
    at = start
    length = LENGTH.search(text, at, end)
    if length is not None:
        yield length, Span(*length.span("amount"))
    while (name := VALUED.search(text, at, end)) is not None:
        at = name.end()
        if _rows(name) or name["name"] in OF_GPUS:
            stop = _end_of_value(text, at, end, words=True, rows=_rows(name))
            # on a line of its own, a value may contain names of settings: `every = each step`
            listed = "(" in text[start:at] and any(row.kind.name in LISTS for row in _rows(name))
            if not listed and not text[start:end].startswith("train "):
                yield name, Span(at, _end_of_value(text, at, end, words=False))
            yield name, Span(at, stop)
            at = max(stop, at) if "=" in name["sign"] else at


def _end_of_value(text: str, at: int, end: int, words: bool, rows: Sequence[schema.Setting] = ()) -> int:
    """The position where a value ends. With `words`, it also ends before the name of another setting. `rows` are the
    settings that may have the value.
    """
    depth, quote = 0, ""
    while at < end:
        sign = text[at]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in '"`':
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif not depth and (stop := STOP.match(text, at, end)) is not None:
            word = stop["word"] or stop["item"]
            if word is None and "#" in stop[0]:
                break
            if not words:
                at += 1
                continue
            if stop["item"] and any(f"{row.clause}.{word}" in schema.BY_PATH for row in rows):
                break
            if stop["item"] and (word in schema.outer_names() or ("_" in word and is_known(word, loosely=False))):
                break
            if word in schema.outer_names() and text[stop.end() : end].lstrip()[:1] == "=":
                break
            if word is None or word in schema.bare_choices() or word in ("with", "for") or _is_switch(word):
                break
        if depth < 0:
            break
        at += 1
    return at - (len(text[:at]) - len(text[:at].rstrip()))


def _is_switch(word: str) -> bool:
    path = schema.outer_names().get(word)
    return word in schema.CLAUSES or (path is not None and schema.BY_PATH[path].kind.name == "flag")
