"""Rewrite lists that other notations write in another form: `data mix = [alpaca, capybara]`, and the values of a sweep
as in `lr: { values: [1e-5, 2e-5] }`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from xpc.compiler.language.kinds import FLAG
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.suggest.lines.rewriting import findings_in, replaced
from xpc.compiler.suggest.meaning import meaning
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve
from xpc.grammar.source import Span

SPACE = "[ \\t]{0,40}"
"""A pattern for spaces. Their number is limited, because a line of a hostile file may have thousands."""
SOURCES = re.compile(
    rf"^{SPACE}data[ \t]{SPACE}(?P<name>[A-Za-z][\w-]*){SPACE}"
    rf"(?:(?:[=:]{SPACE})?\[(?P<items>[^\[\]]{{0,2000}})\]|[=:]{SPACE}(?P<one>[^\s\[\]{{}}][^\[\]{{}}\n]{{0,400}}))$",
    re.MULTILINE,
)
"""A pattern for a mixture as a list: `data mix = [alpaca, capybara]`."""
SOURCE = re.compile(
    r"(?P<name>\"[^\"]+\"|[\w./-]+(?::[\w.-]+)?)"
    r"(?:[ \t]*[:=*x(]?[ \t]*(?<=[ \t:=*x(])(?P<share>\d*\.?\d+)(?P<percent>%)?\)?)?"
)
VALUES = re.compile(
    rf"^(?P<indent>{SPACE})\"?(?P<name>[A-Za-z][\w.-]*)\"?{SPACE}[:=]?{SPACE}"
    rf"(?:\{{{SPACE}|\n[ \t]{SPACE}|\{{{SPACE}\n{SPACE})"
    rf"\"?values\"?{SPACE}[:=]{SPACE}(?P<list>\[[^\[\]\n]*\])(?:[ \t\n]{{0,40}}\}})?{SPACE},?{SPACE}$",
    re.MULTILINE,
)
"""A pattern for the values of a sweep in W&B's notation: `lr: { values: [1e-5, 2e-5] }`."""
RANGE = re.compile(
    rf"^(?P<indent>{SPACE})\"?(?P<name>[A-Za-z][\w.-]*)\"?{SPACE}[:=]?{SPACE}\{{{SPACE}\"?min\"?{SPACE}[:=]{SPACE}"
    rf"(?P<min>[\d.e-]+){SPACE},{SPACE}\"?max\"?{SPACE}[:=]{SPACE}(?P<max>[\d.e-]+){SPACE}\}}{SPACE},?{SPACE}$",
    re.MULTILINE,
)
"""A pattern for a range of a sweep: `lr = {min = 1e-6, max = 1e-4}`."""
SWITCHES = re.compile(rf"^{SPACE}(?P<name>[a-z]+){SPACE}[=:]?{SPACE}\[(?P<items>[\w, ]+)\]{SPACE}$", re.MULTILINE)
"""A pattern for the switches of a clause as a list: `memory = [liger, checkpointing]`."""
WEIGHTS = re.compile(
    rf"^(?P<indent>{SPACE})rewards{SPACE}[=:]?{SPACE}(?P<brace>\{{)?{SPACE}\n"
    rf"(?P<items>(?:[ \t]{SPACE}\w+{SPACE}[=:]{SPACE}[\d.]+,?{SPACE}\n)+)(?(brace){SPACE}\}}{SPACE}$)",
    re.MULTILINE,
)
"""A pattern for rewards with their weights in a block: `rewards { accuracy: 1.0 }`."""
REWARDS = "rewards are a list, each with its weight"
MESSAGES = {
    SOURCES: "a mixture is a block of sources",
    VALUES: "a sweep lists a setting's values",
    RANGE: "a sweep lists a setting's values",
    SWITCHES: "the settings of a clause stand in a block",
    WEIGHTS: REWARDS,
}


def rewrite_lists(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """If a pattern of this module matches a list, replace all findings about the list by one finding with an edit."""
    out = list(problems)
    sources = {one.primary.source.name: one.primary.source for one in problems if one.primary is not None}
    for source in sources.values():
        sweeps = "sweep" in source.text or "parameters" in source.text
        patterns = (SOURCES, SWITCHES, WEIGHTS, *((VALUES, RANGE) if sweeps else ()))
        found = [one for pattern in patterns for one in pattern.finditer(source.text)]
        for match in found[:20]:
            inside = findings_in(out, source, match.start(), match.end())
            form = _form(match)
            alone = match.re is SOURCES and match["one"] and not re.search(rf"\bon[ \t]+{match['name']}\b", source.text)
            if not inside or not form or alone:
                continue
            span = Span(match.start(), match.start() + len(match[0].rstrip("\n")))
            message = MESSAGES[match.re]
            block = f"write a block: `{form.partition(chr(10))[0]}`, each item on a line of its own, and `}}`"
            several = match.re is SOURCES or match.re is SWITCHES
            help = block if several else f"write `{form.strip()}`"
            edits = () if match.re is RANGE else (Edit(span, form),)
            help = f"{help} with the values that you want" if match.re is RANGE else help
            new = evolve(inside[0], message=message, primary=Label(source, span), help=help, edits=edits)
            out = replaced(out, inside, new)
    return out


def _form(match: re.Match[str]) -> str:
    """The text to write for a list. "" if it is unclear what the list means."""
    if match.re is SOURCES or match.re is SWITCHES:
        text = match["items"] or match["one"] if match.re is SOURCES else match["items"]
        items = [one.strip() for one in re.split(r",|\n|[ \t]and[ \t]|[ \t][+&|][ \t]", text) if one.strip()]
        if match.re is SOURCES:
            items = source_lines(items)
        rows = [BY_PATH.get(f"{match['name']}.{one}") for one in items]
        legal = match.re is SOURCES or all(row is not None and row.kind is FLAG for row in rows)
        head = f"data {match['name']}" if match.re is SOURCES else match["name"]
        below = "".join(f"  {one}\n" for one in items)
        return f"{head} {{\n{below}}}" if items and legal else ""
    if match.re is WEIGHTS:
        pairs = re.findall(r"(\w+)[ \t]*[=:][ \t]*(\d[\d.]*)", match["items"])
        return match["indent"] + list_of_rewards(pairs)
    known = meaning(match["name"], exact=True)
    row = None if known is None else BY_PATH.get(known.path)
    if row is None:
        return ""
    values = f"[{match['min']}, {match['max']}]" if match.re is RANGE else match["list"]
    return f"{match['indent']}{row.path if row.inner else row.name} = {values}"


def source_lines(items: Sequence[str]) -> list[str]:
    """The lines of a `data` block for sources, which may have shares: `capybara 70%`. Empty if an item is not
    understood, or if the shares are not all of the mixture.
    """
    found = [SOURCE.fullmatch(one) for one in items]
    named = [one for one in found if one is not None]
    shares = [float(one["share"]) * (1 if one["percent"] else 100) for one in named if one["share"]]
    if len(named) < len(items) or (shares and (len(shares) < len(named) or abs(sum(shares) - 100) > 0.1)):
        return []
    ends = [f" {{ share = {share:g}% }}" for share in shares] or [""] * len(named)
    return [one["name"] + end for one, end in zip(named, ends, strict=True)]


def list_of_rewards(pairs: Iterable[tuple[str, str]]) -> str:
    """The setting for the names of rewards, each with its weight; a weight of "" is not written."""
    return f"rewards = [{', '.join(f'{name}(weight={weight})' if weight else name for name, weight in pairs)}]"


def axis_in_words(typed: str) -> list[str]:
    """The line of a sweep for a list whose setting is named in several words: `lr = [1e-5]` for `learning rate =
    [1e-5]`. Empty for any other line.
    """
    name, sign, values = typed.partition("=")
    known = meaning("_".join(name.split()), exact=True) if sign and len(name.split()) > 1 and "{" not in name else None
    row = None if known is None or known.value else BY_PATH.get(known.path)
    return [] if row is None else [f"{row.path if row.inner else row.name} = {values.strip()}"]
