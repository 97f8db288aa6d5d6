"""`python tests/evidence/rules_page.py`: write docs/rules.md, the page of rules with their evidence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

import fate as fates
from evidence import examples, proof_of, proofs, stated
from fate import Fate

from xpc.compiler.explain.reference import first_sentence
from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.rules import every
from xpc.compiler.rules.core.rule import PARTS, SOURCE
from xpc.grammar.record import record

HEAD = """\
# Rules

Written by `make docs` from `compiler/rules/` and `tests/evidence/`; do not edit.

The rules come from a table of {rows} conditions under which a fine-tuning run fails, or silently does something other
than its configuration says. We found these conditions by reading and running TRL, transformers, accelerate, DeepSpeed,
peft and Liger. {implemented} of them are checked, {unwritable} cannot be written in a spec, {preflight} are found by
the preflight on the training machine, and {refused} are not checked, for a stated reason. `xpc explain CODE` prints the
section of one code.

To silence a warning or a note, write a comment with the reason at the end of its line:

```
strategy fsdp1   # xpc: allow XP410 the cluster's image has no newer torch
```

## Checked
"""
FAMILIES = {
    "1": "Names, units and files",
    "2": "Batch, optimizer, schedule",
    "3": "Precision, attention, kernels",
    "4": "Strategy and adapters",
    "5": "Data, evaluation, supervised training",
    "6": "Preferences and reinforcement",
    "7": "Saving, resuming, tracking",
    "8": "Launch",
    "9": "The spec itself",
}
NOT_CHECKED = (
    (fates.UNWRITABLE, "Cannot be written", "A spec cannot express these conditions. The last column explains why."),
    (
        fates.PREFLIGHT,
        "Found by the preflight",
        "Only the training machine can show these conditions. A bundle checks them before it loads a model.",
    ),
    (fates.REFUSED, "Not checked", "These conditions are not checked, for the reason in the last column."),
)


@record
class Entry:
    """A code and its explanation on the page."""

    code: str
    slug: str
    severity: str
    text: str


def entries() -> list[Entry]:
    """Every rule, and every code that the compiler itself reports, sorted by code."""
    found = [Entry(rule.code, rule.slug, rule.severity, rule.text) for rule in every()]
    found += [Entry(code, slug, severity, explanation(code)) for code, (slug, severity) in CODES.items()]
    return sorted(found, key=lambda one: one.code)


def page() -> str:
    """The page as Markdown."""
    rows, _ = fates.fates()
    counts = {kind: sum(fate.kind == kind for fate in rows.values()) for kind in fates.KINDS}
    lines = [HEAD.format(rows=len(rows), **counts)]
    known = entries()
    for digit, title in FAMILIES.items():
        family = [one for one in known if one.code[2] == digit]
        lines += [f"### XP{digit}xx: {title}", "", "| code | slug | severity | |", "|---|---|---|---|"]
        lines += [
            f"| [{one.code}](#{one.code.lower()}) | {one.slug} | {one.severity} | {first_sentence(one.text)} |"
            for one in family
        ]
        lines += [""]
    lines += ["## Explained", ""]
    by_code, holds = fates.by_code(), stated()
    for one in known:
        lines += explained(one, by_code.get(one.code, []), holds)
    for kind, title, about in NOT_CHECKED:
        lines += [f"## {title}", "", about, ""]
        lines += _listed(fate for fate in rows.values() if fate.kind == kind)
    lines += ["## Checked, but not proven here", "",
              "The effect of these conditions is known from the libraries' source code. Showing it needs what the last "
              "column lists.", ""]  # fmt: skip
    lines += _needing(rows)
    lines += ["## Bans that no longer hold", "",
              "Other tools or older versions refuse these. They work today, so xpc accepts them.", ""]  # fmt: skip
    lines += ["| claim | today |", "|---|---|"]
    lines += [f"| {cell(ban.said)} | {cell(ban.now)} |" for ban in fates.bans()]
    return "\n".join(lines) + "\n"


def explained(one: Entry, rows: list[Fate], holds: Mapping[str, list[str]]) -> list[str]:
    """The section of a code: its explanation with the example before the source, and its rows with their proofs."""
    text, lead, source = markdown(one.text).partition(f"\n\n{SOURCE}")
    for part in PARTS:
        text = text.replace(f"\n\n{part}", f"\n\n**{part.strip()}** ")
    lines = [f'<a id="{one.code.lower()}"></a>', f"### {one.code} {one.slug} ({one.severity})", "", text, ""]
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
        lines += [f"**Applies on** {stacks}, in these cases. After the colon: what happens without the rule.", ""]
        lines += [f"- {fate.row} ({cell(fate.name)}): {proof_of(fate, one.code)}" for fate in rows] + [""]
    return lines


def _needing(rows: Mapping[str, Fate]) -> list[str]:
    """The table of checked rows that no proof shows, and what a proof would need."""
    lines = ["| row | | codes | needs |", "|---|---|---|---|"]
    for fate in rows.values():
        found = proofs().get(fate.row, [])
        if fate.kind == fates.IMPLEMENTED and all(one.needs for one in found):
            needs = "; ".join(dict.fromkeys(one.needs for one in found)) or fate.unproven
            lines.append(f"| {fate.row} | {cell(fate.name)} | {', '.join(fate.codes)} | {cell(needs)} |")
    return [*lines, ""]


def _listed(rows: Iterable[Fate]) -> list[str]:
    lines: list[str] = []
    letter = ""
    for fate in rows:
        if fate.row[0] != letter:
            letter = fate.row[0]
            lines += [*([""] if lines else []), f"### {fates.GROUPS[letter]}", "", "| row | | why |", "|---|---|---|"]
        lines.append(f"| {fate.row} | {cell(fate.name)} | {cell(fate.why)} |")
    return [*lines, ""]


def cell(text: str) -> str:
    """A text as a cell of a Markdown table: on one line, with bars escaped."""
    return markdown(" ".join(text.split())).replace("|", "\\|")


def markdown(text: str) -> str:
    """A text in which angle brackets and stars outside of backticks are escaped."""
    parts = text.split("`")
    outside = [part.replace("<", "&lt;").replace("*", "\\*") if n % 2 == 0 else part for n, part in enumerate(parts)]
    return "`".join(outside)


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join("docs", "rules.md")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    text = page()
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(text)
    print(f"wrote {path}")
