"""Spec to the bundle's `README.md`: what the run is, in tables that a reviewer can read."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.lower.specfile import show
from xpc.compiler.schema import BY_PATH
from xpc.compiler.spec import BASE, SPEC, Spec, Value
from xpc.grammar.diagnostic import ERROR, Diagnostic


def readme(spec: Spec, problems: Sequence[Diagnostic]) -> str:
    """The page. Texts of the spec are escaped, so that a name cannot become markup."""
    hardware = spec.hardware
    gbs, micro, accum = (spec.integer(f"batch.{name}") for name in ("gbs", "micro", "accum"))
    lines = [
        f"# {cell(spec.name)}",
        "",
        "Compiled by xpc. Every number of this run is in the files beside this page; `bundle.toml` has their digests.",
        "",
        "```",
        "pip install -r requirements.txt",
        "./launch.sh",
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| model | {cell(spec.model.path or str(spec.model.id))}{_at(spec.model.revision)} |",
        f"| architecture | {_architecture(spec)} |",
        *(
            f"| data | {cell(_source(source.path or str(source.id), source.config, source.split, source.slice))}"
            f"{_at(source.revision)}, {source.shape} |"
            for source in spec.data
        ),
        f"| hardware | {hardware.nodes} x ({cell(spec.text('hardware'))}) = {hardware.world} processes |",
        f"| batch | {gbs} = {micro} x {accum} accumulation x {hardware.world} processes, "
        f"{spec.integer('batch.seq')} tokens at most a sequence |",
        f"| strategy | {spec.text('strategy')}, {spec.text('precision')} |",
        f"| target | {spec.target.name}: {cell(spec.target.title)} |",
        "",
        "## Written",
        "",
        *_table(spec, written=True),
        "",
        "## Not written: defaults and derivations",
        "",
        *_table(spec, written=False),
    ]
    if spec.extra:
        lines += ["", "## Passed on unchecked by the language", "", "| name | value |", "|---|---|"]
        lines += [
            f"| {escape}: {cell(name)} | {cell(str(value.value))} |"
            for escape, table in spec.extra.items()
            for name, value in table.items()
        ]
    shown = [one for one in problems if one.severity != ERROR]
    if shown:
        lines += ["", "## Warnings and notes", ""]
        lines += [f"- {one.severity} {one.code} {one.slug}: {cell(one.message)}" for one in shown]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """A text for a Markdown table: one line, nothing in it is markup."""
    out = []
    for c in text:
        if c in "\\`*_{}[]<>#|!~$&":
            out.append({"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"}.get(c, "\\" + c))
        else:
            out.append(c if c.isprintable() else " ")
    return "".join(out)


def _at(revision: str | None) -> str:
    return "" if revision is None else f" at {cell(revision)}"


def _source(name: str, config: str | None, split: str, part: str | None) -> str:
    return f"{name}{'' if config is None else ':' + config}[{split}{'' if part is None else ':' + part}]"


def _architecture(spec: Spec) -> str:
    facts = spec.model.facts
    if facts is None:
        return "not known to the compiler"
    return (
        f"{facts.params:,} parameters, {facts.layers} layers of {facts.hidden}, {cell(facts.model_type)} "
        f"(from {cell(spec.model.known_from)})"
    )


def _table(spec: Spec, written: bool) -> list[str]:
    lines = ["| setting | value | from |", "|---|---|---|"]
    for path, value in spec.values.items():
        if (value.origin.kind in (SPEC, BASE)) is written:
            lines.append(f"| {path} | {cell(_shown(path, value))} | {cell(value.origin.describe())} |")
    return lines


def _shown(path: str, value: Value) -> str:
    text = show(BY_PATH[path], value.value)
    return text if len(text) <= 200 else text[:197] + "..."
