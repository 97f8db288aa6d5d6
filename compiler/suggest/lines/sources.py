"""Rewrite a list of datasets in YAML as a block of sources: `datasets:` with `- path: tatsu-lab/alpaca` below it
becomes `data mix {`, `tatsu-lab/alpaca` and `}`. Other lists of mappings, such as rewards with their weights, are
rewritten as settings, too. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from xpc.compiler import registry
from xpc.compiler.language.codes import CODES as SLUGS
from xpc.compiler.language.expand.data_block import SOURCE_WORDS
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.suggest.converted_values import REPOSITORY, ROWS
from xpc.compiler.suggest.lines.lists import REWARDS, list_of_rewards
from xpc.compiler.suggest.lines.nested import members_of_yaml
from xpc.compiler.suggest.lines.rewriting import body, findings_in, replaced, rewritten_in
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT
from xpc.compiler.suggest.pasted import of_members
from xpc.compiler.suggest.pasted_values import as_value
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.similar_choices import choice
from xpc.compiler.suggest.tables import mapped, words_of
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

LIST = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]{0,40}):[ \t]{0,20}(?:#[^\n]*)?\n"
    r"(?P<items>[ \t]{0,20}-[ \t]{1,20}[^\s-][^\n]*(?:\n[ \t]{0,20}-[ \t][^\n]*|\n[ \t]{1,40}\S[^\n]*)*)",
    re.MULTILINE,
)
"""A pattern for a list of YAML: a name with a colon, and lines below it that begin with a dash or are indented."""
FLOW = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]{0,40})[ \t:=][ \t:=]{0,20}(?:\[(?P<refs>[^\[\]{}\n]*)\]"
    r"|(?P<quote>[\"']?)(?P<listed>[\w./-]+(?:[ \t]{0,9},[ \t]{0,9}[\w./-]+)+)(?P=quote))[ \t]{0,20}$",
    re.MULTILINE,
)
"""A pattern for a list of datasets on one line: `datasets: [tatsu-lab/alpaca, me/rows]`, `dataset = "a,b"`."""
MIXED = re.compile(
    r"^(?P<name>[a-z][\w-]{0,40})(?:[ \t]{1,20}[\w-]{1,40}(?=[ \t]*[{(]))?[ \t]{0,20}[:=]?[ \t]{0,20}"
    r"(?:\{(?P<block>(?:[^{}]|\{[^{}\n]*\})+)\}|\((?P<call>[^\n]+)\)|(?P<refs>[^{}()=\n]+))[ \t]{0,20}$",
    re.MULTILINE,
)
"""A pattern for datasets with shares as in other tools: `mix { capybara = 0.7, ultrachat-200k = 0.3 }`, and for
datasets that are joined by signs: `data capybara + ultrachat-200k`.
"""
LINE = re.compile(r"[ \t]*(?P<dash>-[ \t]+)?(?P<name>[A-Za-z][\w-]*):[ \t]*(?P<value>[^\s{#][^{#\n]*?)[ \t]*(?:#.*)?")
REF = r"\"[^\"]+\"|'[^']+'|[\w.-]+/[\w.-]+|[\w.-]+\.jsonl?|[A-Za-z][\w-]*"
AMOUNT = r"\d+(?:\.\d+)?\s?%?|\.\d+"
PART = re.compile(
    rf"""(?:[A-Za-z]\w*\s*[=:]\s*(?=[\w"'.-]*[A-Za-z]))?         # a name of its own: `a = `
    (?:(?P<before>{AMOUNT})(?:\s*[*x:]\s*|\s+(?:of\s+)?))?       # `70% of`
    (?P<ref>{REF})(?:\s*[=:*x@(]\s*|\s+)?
    (?:[({{]?\s*(?P<key>[a-z_]+)\s*[=:]\s*)?(?P<after>{AMOUNT})?  # `(weight=0.7)`
    \s*[)}}]?""",
    re.VERBOSE,
)
"""A pattern for one dataset of a mixture, with its share: `capybara = 0.7`, `70% capybara`, `capybara (70%)`."""
ALONE = re.compile(rf"[ \t]*-[ \t]+(?P<ref>{REF})[ \t]*(?:#.*)?")
COLUMN = re.compile(r"[A-Za-z_][\w-]*")
SHARE = re.compile(r"\d+(?:\.\d+)?%?|\.\d+")
NAMES = words_of("data_lists")
MIXTURES = ("mix", "blend", "datamix", "datamixture", "mixtures", "mixer", "datablend")
EVALUATED = words_of("eval_lists")
ROLES = mapped("source_keys")
"""Maps keys of other tools to the parts of a source; `SOURCE_WORDS` has further ones."""
SOURCES = "datasets are the sources of a `data` block"
MOST_LISTS = 10
MOST = 20
"""At most this many sources are rewritten."""


def rewrite_sources(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace all findings about a list of datasets, or about another list of mappings, by one finding about the
    complete list.
    """
    out = list(problems)
    sources = {one.primary.source.name: one.primary.source for one in problems if one.primary is not None}
    for source in sources.values():
        found = [match for pattern in (LIST, FLOW) for match in pattern.finditer(source.text)]
        found += [one for one in MIXED.finditer(source.text) if letters(one["name"]) in (*NAMES, *MIXTURES)]
        for match in found[:MOST_LISTS]:
            inside = findings_in(out, source, match.start(), match.end())
            span = Span(*match.span())
            made = _advised(source, span, match) if inside else None
            if made is not None:
                message, help, edits = made
                new = evolve(
                    inside[0], code="XP101", slug=SLUGS["XP101"][0], message=message, primary=Label(source, span),
                    help=help[:600], edits=edits,
                )  # fmt: skip
                out = replaced(out, inside, new)
    return out


def _advised(source: Source, span: Span, match: re.Match[str]) -> tuple[str, str, tuple[Edit, ...]] | None:
    """The message, the help and the edits for a list. None for a list that other functions rewrite."""
    name = match["name"]
    if match.re is MIXED:
        items = _parts(match)
        return (SOURCES, *_written(source, span, items)) if items else None
    flow = match.re is FLOW
    listed = (match["refs"] or match["listed"] or "") if flow else ""
    text = "\n".join(f"- {one.strip()}" for one in listed.split(",")) if flow else match["items"]
    items = _items(text) if letters(name) in (*NAMES, *EVALUATED) else []
    if items and letters(name) in NAMES:
        return SOURCES, *_written(source, span, items)
    if items:
        refs = [_reference(one) for one in items]
        form = f"eval(data={refs[0]})" if len(refs) == 1 else f"eval(data=[{', '.join(refs)}])"
        edits = (Edit(span, form),) if all(one.keys() <= {"ref", "split", "config"} for one in items) else ()
        return "the rows for evaluation are a setting of `eval`", f"write `{form}`", edits
    if flow or ":" not in match["items"].partition("\n")[0]:
        return None
    parts = re.split(r"\n(?=[ \t]*-[ \t])", match["items"])
    named = [re.findall(r"(?:name|type|func|function)\"?:[ \t]*([\w.:\"-]+)", one) for one in parts]
    weights = [re.findall(r"weight\"?:[ \t]*([\d.]+)", one) for one in parts]
    if letters(name) in ("rewards", "rewardfuncs", "rewardfunctions") and all(len(one) == 1 for one in named):
        form = list_of_rewards((one[0], "".join(each[:1])) for one, each in zip(named, weights, strict=True))
        return REWARDS, f"write `{form}`", (Edit(span, form),)
    before = body(method_of(source.text))
    message = f"`{name[:60]}:` is a list of mappings, which the language does not have"
    head = rewritten_in(before, f"{name.replace('-', '_')}=[x]")
    help = f"write the settings of `{name[:60]}` one by one"
    if len(parts) == 1:
        lines = re.sub(r"^([ \t]*)-", r"\1 ", match["items"]).split("\n")
        inside = members_of_yaml(lines)
        whole = of_members(name, inside, before) if inside else None
        if whole is not None and whole.form is not None:
            return message, whole.help, (Edit(span, whole.form),)
        help = help if whole is None else whole.help
    return message, head.help if head.form is None and NO_EQUIVALENT in head.help else help, ()


def _parts(match: re.Match[str]) -> list[dict[str, str]]:
    """The datasets of a mixture on one line or in braces, as `_items` returns them. Empty if a part is unclear."""
    inside = match["block"] or match["call"]
    parts = [one.strip() for one in re.split(r"[,\n;]" if inside else r"[,+&]|[ \t]and[ \t]", inside or match["refs"])]
    out: list[dict[str, str]] = []
    for one in filter(None, parts):
        part = PART.fullmatch(one)
        share = "" if part is None else (part["before"] or part["after"] or "").replace(" ", "")
        if part is None or (part["key"] and SOURCE_WORDS.get(letters(part["key"])) != "share"):
            return []
        ref = part["ref"].strip("\"'")
        if not (REPOSITORY.fullmatch(ref) or ROWS.fullmatch(ref) or registry.find_dataset(ref)):
            return []
        out.append({"ref": part["ref"], **({"share": share} if share else {})})
    shares = [one["share"] for one in out if "share" in one]
    if any("%" in one for one in shares):  # `a = 0.7, b = 30%`
        shares = [one if "%" in one else f"{float(one) * 100:g}%" for one in shares]
        out = [{**one, "share": share} for one, share in zip(out, shares, strict=False)]
    fewest = 1 if match["block"] and match["name"] != "data" else 2  # `dataset_mixer { me/rows = 1.0 }`
    return out if fewest <= len(out) <= MOST and len(shares) in (0, len(out)) else []


def _items(text: str) -> list[dict[str, str]]:
    """The mappings of a YAML list. A key such as `path` is replaced by its meaning for a source, such as `ref`; any
    other key stays. Empty if a line is not understood.
    """
    out: list[dict[str, str]] = []
    for line in text.split("\n"):
        alone = ALONE.fullmatch(line)
        if alone is not None:
            out.append({"ref": alone["ref"]})
            continue
        match = LINE.fullmatch(line)
        if match is None or (match["dash"] is None and not out):
            return []
        if match["dash"] is not None:
            out.append({})
        typed = letters(match["name"])
        role = ROLES.get(typed) or SOURCE_WORDS.get(typed, match["name"])
        out[-1][role] = match["value"]
    for one in out:  # `name` is the dataset or, next to `path`, the dataset's configuration
        if "name" in one:
            one.setdefault("config" if "ref" in one else "ref", one.pop("name"))
    return out if len(out) <= MOST and all("ref" in one for one in out) else []


def _reference(item: Mapping[str, str]) -> str:
    """A source of a `data` block: `tatsu-lab/alpaca:en[train]`, or a file in quotes."""
    ref = item["ref"].strip("\"'")
    if ROWS.fullmatch(ref) or not (REPOSITORY.fullmatch(ref) or registry.find_dataset(ref)):
        return f'"{ref}"'
    config, split = (item.get(role, "").strip("\"'") for role in ("config", "split"))
    return ref + (f":{config}" if config else "") + (f"[{split}]" if split else "")


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
    unknown = [key for one in items for key in one if key not in (*ROLES.values(), *SOURCE_WORDS.values())]
    unknown += [one["format"] for one, known in zip(items, formats, strict=True) if "format" in one and not known]
    unclear = bool(unknown) or (any("share" in one for one in items) and not shares)
    refs = [_reference(one) for one in items]
    part = [f"take = {100 * shares:.4g}%"] if len(items) == 1 and 0 < shares < 1 else []
    settings = [
        [*part, *_settings(one, shares * (len(items) > 1)), *([f"format = {format}"] if format else [])]
        for one, format in zip(items, formats, strict=True)
    ]
    train = parse(source)[0].train
    data = "" if train is None else source.slice(train.data.span)
    named = [_canonical(one) for one in refs]
    rest = f"; `{unknown[0][:40]}`: see `xpc explain data`" if unknown else ""
    if len(items) == 1 and (not data or registry.find_dataset(data) or "/" in data):
        inner = ", ".join(one.replace(" = ", "=") for one in settings[0])
        form = f"{'SOURCE' if part else 'data'}({inner})" if inner else ""
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
