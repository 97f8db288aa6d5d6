"""Rewrite a list of datasets in YAML as a block of sources: `datasets:` with `- path: tatsu-lab/alpaca` below it
becomes `data mix {`, `tatsu-lab/alpaca` and `}`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from xpc.compiler import registry
from xpc.compiler.language.codes import CODES as SLUGS
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.suggest.converted_values import REPOSITORY, ROWS
from xpc.compiler.suggest.lines.rewriting import findings_in, replaced
from xpc.compiler.suggest.meaning import choice
from xpc.compiler.suggest.pasted_values import as_value
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

LIST = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]{0,40}):[ \t]{0,20}(?:#[^\n]*)?\n"
    r"(?P<items>[ \t]{0,20}-[ \t]{1,20}[A-Za-z][\w-]*:[^\n]*(?:\n[ \t]{0,20}-[ \t][^\n]*|\n[ \t]{1,40}\S[^\n]*)*)",
    re.MULTILINE,
)
"""A pattern for a list of mappings: a name, and lines below it that begin with `- KEY: VALUE` or are indented."""
LINE = re.compile(r"[ \t]*(?P<dash>-[ \t]+)?(?P<name>[A-Za-z][\w-]*):[ \t]*(?P<value>[^\s{#][^{#\n]*?)[ \t]*(?:#.*)?")
COLUMN = re.compile(r"[A-Za-z_][\w-]*")
SHARE = re.compile(r"\d+(?:\.\d+)?%?|\.\d+")
NAMES = (
    "data", "dataset", "datasets", "sources", "traindata", "traindataset", "traindatasets", "datasetmixer",
    "datasetmixture", "mixture", "trainingdata", "datalist",
)  # fmt: skip
ROLES = {
    "ref": "path dataset datasetname datasetpath datasetid repo repoid hfpath source id file datafiles url",
    "config": "subset config configname datasetconfig subsetname",
    "split": "split datasetsplit trainsplit",
    "share": "share weight ratio proportion prob probability frac fraction mixtureweight samplingweight",
    "take": "take maxsamples numsamples samples limit numrows count maxrows",
    "columns": "columns column field fieldmessages messageskey textcolumn textfield",
    "format": "type format formatting promptstyle rowformat",
}
"""Maps each part of a source in xpc to the keys of other tools, in small letters without separators."""
MOST = 20
"""At most this many sources are rewritten."""


def rewrite_sources(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace all findings about a list of datasets by one finding about the complete list."""
    out = list(problems)
    sources = {one.primary.source.name: one.primary.source for one in problems if one.primary is not None}
    for source in sources.values():
        for match in [one for one in LIST.finditer(source.text) if letters(one["name"]) in NAMES][:3]:
            inside = findings_in(out, source, match.start(), match.end())
            items = _items(match["items"])
            if inside and items:
                span = Span(*match.span())
                help, edits = _written(source, span, items)
                message, label = "datasets are the sources of a `data` block", Label(source, span)
                made = evolve(
                    inside[0], code="XP101", slug=SLUGS["XP101"][0], message=message, primary=label, help=help[:600],
                    edits=edits,
                )  # fmt: skip
                out = replaced(out, inside, made)
    return out


def _items(text: str) -> list[dict[str, str]]:
    """The mappings of a list, with the roles of their keys. A key without a role is its own role. Empty if a line is
    not understood.
    """
    out: list[dict[str, str]] = []
    for line in text.split("\n"):
        match = LINE.fullmatch(line)
        if match is None or (match["dash"] is None and not out):
            return []
        if match["dash"] is not None:
            out.append({})
        typed = letters(match["name"])
        role = next((role for role, names in ROLES.items() if typed in names.split()), match["name"])
        out[-1][role] = match["value"]
    for one in out:  # `name` is the dataset, or its configuration next to `path`
        if "name" in one:
            one.setdefault("config" if "ref" in one else "ref", one.pop("name"))
    return out if len(out) <= MOST and all("ref" in one for one in out) else []


def _reference(item: Mapping[str, str]) -> str:
    """A source of a `data` block: `tatsu-lab/alpaca:en[train]`, or a file in quotes."""
    ref = item["ref"].strip("\"'")
    if ROWS.fullmatch(ref) or not (REPOSITORY.fullmatch(ref) or registry.find_dataset(ref)):
        return f'"{ref}"'
    parts = {role: item[role].strip("\"'") for role in ("config", "split") if role in item}
    return (
        ref + (f":{parts['config']}" if "config" in parts else "") + (f"[{parts['split']}]" if "split" in parts else "")
    )


def _settings(item: Mapping[str, str], shares: float) -> list[str]:
    """The settings of a source. `shares` is the sum of all weights."""
    out = []
    if "columns" in item:
        out.append(f"columns = [{', '.join(COLUMN.findall(item['columns']))}]")
    if "take" in item:
        out.append(f"take = {as_value(item['take'])}")
    if "share" in item and shares:
        out.append(f"share = {100 * float(item['share'].rstrip('%')) / shares:.4g}%")
    return out


def _written(source: Source, span: Span, items: Sequence[Mapping[str, str]]) -> tuple[str, tuple[Edit, ...]]:
    """The help for a list of datasets, and its edits. There are no edits if the first line names other data, or if a
    key is not understood.
    """
    weights = [one["share"].rstrip("%") for one in items if SHARE.fullmatch(one.get("share", ""))]
    shares = sum(map(float, weights)) if len(weights) == len(items) else 0.0
    formats = [choice(BY_PATH["data.format"], one.get("format", "").strip("\"'")) or "" for one in items]
    unknown = [key for one in items for key in one if key not in ROLES]
    unknown += [one["format"] for one, known in zip(items, formats, strict=True) if "format" in one and not known]
    unclear = bool(unknown) or (any("share" in one for one in items) and not shares)
    refs = [_reference(one) for one in items]
    settings = [
        [*_settings(one, shares), *([f"format = {format}"] if format else [])]
        for one, format in zip(items, formats, strict=True)
    ]
    train = parse(source)[0].train
    data = "" if train is None else source.slice(train.data.span)
    named = [_canonical(one) for one in refs]
    rest = f"; `{unknown[0][:40]}`: see `xpc explain data`" if unknown else ""
    if len(items) == 1 and (not data or registry.find_dataset(data) or "/" in data):
        inner = ", ".join(one.replace(" = ", "=") for one in settings[0])
        form = f"data({inner})" if inner else ""
        if _canonical(data) != named[0]:
            return f"write `train MODEL on {refs[0]}`{f', and `{form}`' if form else ''}{rest}", ()
        edit = Edit(span, form) if form else Edit(Span(span.start - 1, span.end), "")
        help = f"write `{form}`" if form else "leave the block out: the first line names the data"
        return help + rest, () if unclear else (edit,)
    name = data if data.isidentifier() and registry.find_dataset(data) is None else "mix"
    rows = [f"  {ref} {{ {', '.join(one)} }}" if one else f"  {ref}" for ref, one in zip(refs, settings, strict=True)]
    block = "\n".join((f"data {name} {{", *rows, "}"))
    shown = ", ".join(f"`{' '.join(one.split())}`" for one in rows)
    help = f"write `data {name} {{`, {shown}, each on its own line, and `}}`{rest}"
    if name == data:
        return help, () if unclear else (Edit(span, block),)
    help = f"{help}, and `on {name}` in the first line"
    if train is None or unclear or _canonical(data) not in named:
        return help, ()
    return help, (Edit(train.data.span, name), Edit(span, block))


def _canonical(ref: str) -> str:
    """The name of a dataset by which two references are compared: the registry's name, or the text in small letters."""
    known = registry.find_dataset(re.split(r"[:\[@]", ref)[0])
    return known.alias if known is not None else ref.lower()
