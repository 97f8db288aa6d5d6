"""`python tests/evidence/rules_page.py`: write docs/rules.md, and for each topic a page with its rules and their
evidence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import rule_table as outcomes
from evidence import examples, proof_of, proofs, stated
from rule_table import TableRow

from xpc.compiler.explain.reference import first_sentence, write
from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.rules import codes, every
from xpc.compiler.rules.core.rule import PARTS, SOURCE
from xpc.grammar.codes import CODES as SYNTAX
from xpc.grammar.record import record

HEAD = """\
# Rules

Written by `make docs` from `compiler/rules/` and `tests/evidence/`; do not edit.

The rules come from a table of {rows} conditions under which a fine-tuning run fails, or silently does something other
than its configuration says. These conditions were found by reading and running TRL, transformers, accelerate,
DeepSpeed, peft and Liger. {implemented} of them are checked, {unwritable} cannot be written in a spec, {preflight} are
found by the preflight on the training machine, and {refused} are not checked, for a stated reason
([rules/conditions.md](rules/conditions.md)). `xpc explain CODE` prints the section of one code.

To silence a warning or a note, write a comment with the reason at the end of its line:

```
strategy fsdp1   # xpc: allow XP410 the cluster's image has no newer torch
```

## Pages

{pages}

## Codes
"""
TOPICS = {
    "syntax": ("Syntax", ("grammar.",)),
    "names": ("Names, units, files and silenced findings", ("resolve.1", "resolve.90")),
    "turns": (
        "Turns, roles, images and arguments of templates",
        tuple(f"rules.data.{one}" for one in ("export_marks", "images", "roles", "row_arguments", "structure")),
    ),
    "rows": (
        "Rows of the data",
        tuple(
            f"rules.data.{one}"
            for one in (
                "plain_text",
                "read_columns",
                "rows",
                "streams",
                "survey",
                "text_rows",
                "token_rows",
                "tokens",
            )
        ),
    ),
    "sources": ("Sources, prompts and evaluation data", ("rules.data.", "resolve.590")),
    "preview": ("What is learned: findings of `xpc preview`", ("resolve.5",)),
    "sft": (
        "Supervised training and distillation",
        tuple(f"rules.method.{one}" for one in ("sft", "distill", "support")),
    ),
    "preference": (
        "Preferences and reward models",
        tuple(f"rules.method.{one}" for one in ("cpo", "dpo", "kto", "preference")),
    ),
    "online": ("grpo and rloo", ("rules.method.",)),
    "attention": ("Attention and packing", tuple(f"rules.numerics.{one}" for one in ("attention", "packing", "batch"))),
    "kernels": (
        "Kernels, compilation and recomputation",
        tuple(f"rules.numerics.{one}" for one in ("compilation", "fused_losses", "kernels", "recomputation")),
    ),
    "precision": ("Precision and quantization", ("rules.numerics.",)),
    "optimizer": ("Optimizer, schedule and best model", ("rules.optimizer.",)),
    "adapters": ("Adapters and frozen weights", ("rules.adapters.", "resolve.93")),
    "launch": ("Launchers and sweeps", ("engines.", "rules.strategy.launch", "resolve.88")),
    "strategy": ("Strategy and memory", ("rules.strategy.",)),
    "saving": ("Saving, hub, tracking and secrets", ("rules.saving.",)),
    "extra": (
        "Arguments in `extra trl`",
        tuple(f"rules.extra.{one}" for one in ("data", "gradients", "numerics", "optimizer", "run")),
    ),
    "extra-launch": ("Arguments in `extra accelerate` and `extra deepspeed`", ("rules.extra.",)),
}
"""Maps each page to its title and to prefixes of module names. A rule is on the first page that has a prefix of the
rule's module. A code that is no rule has a number in place of a module: `resolve.123` is XP123.
"""
CONDITIONS = """\
# Conditions that no rule checks, or no test proves

Written by `make docs` from `tests/evidence/`; do not edit. [rules.md](../rules.md) lists what is checked.

"""
NOT_CHECKED = (
    (outcomes.UNWRITABLE, "Cannot be written", "A spec cannot express these conditions. The last column explains why."),
    (
        outcomes.PREFLIGHT,
        "Found by the preflight",
        "Only the training machine can show these conditions. A bundle checks them before it loads a model.",
    ),
    (outcomes.REFUSED, "Not checked", "These conditions are not checked, for the reason in the last column."),
)


@record
class Entry:
    """A code and its explanation. `topic` is the name of the page in docs/rules/ that contains it."""

    code: str
    slug: str
    severity: str
    text: str
    topic: str


def entries() -> list[Entry]:
    """Every rule, and every code that the grammar and the compiler report, sorted by code."""
    modules = {code: module for code, (module, _) in codes().items()}
    found = [Entry(one.code, one.slug, one.severity, one.text, topic(modules[one.code])) for one in every()]
    found += [
        Entry(code, slug, severity, explanation(code), topic(f"resolve.{code[2:]}"))
        for code, (slug, severity) in CODES.items()
    ]
    found += [
        Entry(one.code, one.slug, "note" if one.slug == "more-errors" else "error", explanation(one.code), "syntax")
        for one in SYNTAX.values()
    ]
    return sorted(found, key=lambda one: one.code)


def topic(module: str) -> str:
    """The name of the page with the rules of a module."""
    return next(name for name, (_, modules) in TOPICS.items() if module.startswith(modules))


def topics() -> dict[str, str]:
    """For each code, the name of the page that explains it."""
    return {one.code: one.topic for one in entries()}


def pages() -> dict[str, str]:
    """The text of each page, by its path in docs/."""
    known = entries()
    topical = {name: [one for one in known if one.topic == name] for name in TOPICS}
    return {
        "rules.md": index(known),
        **{f"rules/{name}.md": topic_page(name, codes) for name, codes in topical.items()},
        "rules/conditions.md": conditions(),
    }


def index(known: list[Entry]) -> str:
    """The list of codes. The entry of a code has the anchor that the code's section had when all rules were on one
    page, so old links still work.
    """
    rows, _ = outcomes.outcomes()
    counts = {kind: sum(outcome.kind == kind for outcome in rows.values()) for kind in outcomes.KINDS}
    links = "\n".join(f"- [{title}](rules/{name}.md)" for name, (title, _) in TOPICS.items())
    lines = [HEAD.format(rows=len(rows), pages=links, **counts), "| code | | |", "|---|---|---|"]
    lines += [
        f'| <a id="{one.code.lower()}"></a>[{one.code} {one.slug}]({address(one)}) | {one.severity} '
        f"| {first_sentence(one.text)} |"
        for one in known
    ]
    return "\n".join(lines) + "\n"


def address(one: Entry) -> str:
    """The address, relative to docs/, of the section about a rule (XPnnn)."""
    return f"rules/{one.topic}.md#{one.code.lower()}"


def topic_page(name: str, codes: list[Entry]) -> str:
    """The text of a topic's page, with a section for each code."""
    lines = [f"# Rules: {TOPICS[name][0]}", "", "Written by `make docs`; do not edit. "
             "[rules.md](../rules.md) lists all codes, and shows how to silence a warning.", ""]  # fmt: skip
    by_code, holds = outcomes.by_code(), stated()
    for one in codes:
        lines += explained(one, by_code.get(one.code, []), holds)
    return "\n".join(lines)


def conditions() -> str:
    """The page of three kinds of conditions: those that no rule checks, those that a rule checks without a proof, and
    obsolete restrictions.
    """
    rows, _ = outcomes.outcomes()
    lines = [CONDITIONS]
    for kind, title, about in NOT_CHECKED:
        lines += [f"## {title}", "", about, ""]
        lines += _listed(outcome for outcome in rows.values() if outcome.kind == kind)
    lines += ["## Checked, but not proven here", "",
              "The source code of the libraries shows the effect of these conditions. No proof in "
              "tests/proof/violations shows it, for the reason in the last column.", ""]  # fmt: skip
    lines += _needing(rows)
    lines += ["## Bans that no longer hold", "",
              "Other tools or older versions refuse these. They work today, so xpc accepts them.", ""]  # fmt: skip
    lines += ["| claim | today |", "|---|---|"]
    lines += [f"| {cell(ban.restriction)} | {cell(ban.now)} |" for ban in outcomes.bans()]
    return "\n".join(lines) + "\n"


def explained(one: Entry, rows: list[TableRow], holds: Mapping[str, list[str]]) -> list[str]:
    """The section about a code on the page of the rules: the explanation, an example, the source, the stacks on which
    the rule applies, and the rows of the rule table, each with its proof.
    """
    text, lead, source = markdown(one.text).partition(f"\n\n{SOURCE}")
    for part in PARTS:
        text = text.replace(f"\n\n{part}", f"\n\n**{part.strip()}** ")
    lines = [f'<a id="{one.code.lower()}"></a>', f"## {one.code} {one.slug} ({one.severity})", "", text, ""]
    if one.code in examples():
        rejected, accepted = examples()[one.code]
        marked = [f"- {line}" for line in rejected] + [f"+ {line}" for line in accepted]
        lines += [
            "**Example:** the lines marked `-` are rejected, those marked `+` accepted.",
            "",
            "```diff",
            *marked,
            "```",
            "",
        ]
    lines += [f"**{SOURCE.strip()}** {source}", ""] if lead else []
    if rows:
        stacks = ", ".join(holds[one.code])
        lines += [f"**Applies on** {stacks}.", ""]
        lines += [
            "<details markdown>",
            "<summary>Cases of this rule: what happens without it, or why no proof shows it</summary>",
            "",
        ]
        lines += [f"- {outcome.row} ({cell(outcome.name)}): {proof_of(outcome, one.code)}" for outcome in rows]
        lines += ["", "</details>", ""]
    return lines


def _needing(rows: Mapping[str, TableRow]) -> list[str]:
    """The table of rows that the compiler checks although no proof shows them, each with the reason why there is no
    proof.
    """
    lines = ["| row | | codes | why |", "|---|---|---|---|"]
    for outcome in rows.values():
        found = proofs().get(outcome.row, [])
        if outcome.kind == outcomes.IMPLEMENTED and all(one.needs for one in found):
            why = "; ".join(dict.fromkeys(f"a proof needs {one.needs}" for one in found)) or outcome.unproven
            lines.append(f"| {outcome.row} | {cell(outcome.name)} | {', '.join(outcome.codes)} | {cell(why)} |")
    return [*lines, ""]


def _listed(rows: Iterable[TableRow]) -> list[str]:
    lines: list[str] = []
    letter = ""
    for outcome in rows:
        if outcome.row[0] != letter:
            letter = outcome.row[0]
            lines += [
                *([""] if lines else []),
                f"### {outcomes.GROUPS[letter]}",
                "",
                "| row | | why |",
                "|---|---|---|",
            ]
        lines.append(f"| {outcome.row} | {cell(outcome.name)} | {cell(outcome.why)} |")
    return [*lines, ""]


def cell(text: str) -> str:
    """Format a text as a cell of a Markdown table: on one line, with bars escaped."""
    return markdown(" ".join(text.split())).replace("|", "\\|")


def markdown(text: str) -> str:
    """Escape angle brackets and stars in a text, except inside backticks."""
    parts = text.split("`")
    outside = [part.replace("<", "&lt;").replace("*", "\\*") if n % 2 == 0 else part for n, part in enumerate(parts)]
    return "`".join(outside)


if __name__ == "__main__":
    docs = sys.argv[1] if len(sys.argv) > 1 else "docs"
    write(docs, pages())
    print(f"wrote {docs}/rules.md and {docs}/rules/")
