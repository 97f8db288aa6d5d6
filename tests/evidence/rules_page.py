"""`python tests/evidence/rules_page.py`: the page of rules, their fates, and what stands behind them."""

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

A table of {rows} conditions under which a fine-tuning run fails, or does something other than what was asked, was read
from and tried on TRL, transformers, accelerate, DeepSpeed, peft and Liger. Of these {implemented} are checked,
{unwritable} cannot be written in the language at all, {preflight} are found on the machine by the preflight, and
{refused} are refused here with a reason. `xpc explain CODE` prints the same about one code.

A warning or a note is silenced in place, with the reason:

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
    (fates.UNWRITABLE, "Cannot be written", "The language has no way to say these; each says what takes its place."),
    (
        fates.PREFLIGHT,
        "Found by the preflight",
        "Only the machine knows these; the bundle looks before it loads a model.",
    ),
    (fates.REFUSED, "Not checked", "Each with the reason."),
)


@record
class Entry:
    """A code with what the page says of it."""

    code: str
    slug: str
    severity: str
    text: str


def entries() -> list[Entry]:
    """Every rule, and what the compiler itself reports, by code."""
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
    for kind, title, said in NOT_CHECKED:
        lines += [f"## {title}", "", said, ""]
        lines += _listed(fate for fate in rows.values() if fate.kind == kind)
    lines += ["## Checked, but not proven here", "", "What these do was read in the sources; to see it needs more.", ""]
    lines += _needing(rows)
    lines += ["## Bans that no longer hold", "", "Other tools or older versions refuse these; they are accepted.", ""]
    lines += ["| said | today |", "|---|---|"]
    lines += [f"| {cell(ban.said)} | {cell(ban.now)} |" for ban in fates.bans()]
    return "\n".join(lines) + "\n"


def explained(one: Entry, rows: list[Fate], holds: Mapping[str, list[str]]) -> list[str]:
    """The section of a code: explanation with its example before the source, and rows with their proofs."""
    text, lead, source = markdown(one.text).partition(f"\n\n{SOURCE}")
    for part in PARTS:
        text = text.replace(f"\n\n{part}", f"\n\n**{part.strip()}** ")
    lines = [f'<a id="{one.code.lower()}"></a>', f"### {one.code} {one.slug} ({one.severity})", "", text, ""]
    if one.code in examples():
        rejected, accepted = examples()[one.code]
        marked = [f"- {line}" for line in rejected] + [f"+ {line}" for line in accepted]
        lines += [
            "**Example:** `-` is rejected, `+` is the nearest that is accepted.",
            "",
            "```diff",
            *marked,
            "```",
            "",
        ]
    lines += [f"**{SOURCE.strip()}** {source}", ""] if lead else []
    if rows:
        lines += [f"Holds for {', '.join(holds[one.code])}. Rows:", ""]
        lines += [f"- {fate.row} {cell(fate.name)}: {proof_of(fate, one.code)}" for fate in rows] + [""]
    return lines


def _needing(rows: Mapping[str, Fate]) -> list[str]:
    """The checked rows that no proof shows, and what one needs."""
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
    """A text for a cell of a table: one line, a bar is none."""
    return markdown(" ".join(text.split())).replace("|", "\\|")


def markdown(text: str) -> str:
    """A text in which angle brackets and stars outside of backticks are no markup."""
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
