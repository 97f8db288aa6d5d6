"""`python -m xpc.compiler.explain.reference`: write the page docs/reference.md from the settings, rules and codes."""

from __future__ import annotations

import os
import sys

from xpc.compiler.explain.examples import example
from xpc.compiler.language import kinds as k
from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.language.schema import SOURCE_SETTINGS, TABLE, Setting, outer_names
from xpc.compiler.language.typed import show
from xpc.compiler.rules import every
from xpc.grammar.codes import CODES as SYNTAX
from xpc.grammar.package_data import read_text


def reference() -> str:
    """The page as Markdown."""
    short = ", ".join(f"`{name}`" for name, path in outer_names().items() if name != path)
    lines = [read_text(__file__, "reference_head.md").rstrip("\n").replace("SHORT", short)]
    lines += [_row(row) for row in TABLE]
    lines += ["", "A row of a `data` block is a source and takes:", "", "| setting | takes | |", "|---|---|---|"]
    lines += [f"| `{name}` | {row.kind.phrase} | {row.doc} |" for name, row in SOURCE_SETTINGS.items()]
    lines += ["", "## Diagnostics", "", "`xpc explain CODE` prints the whole explanation.", ""]
    lines += ["| code | slug | severity | |", "|---|---|---|---|"]
    table = [
        (one.code, one.slug, "note" if one.slug == "more-errors" else "error", explanation(one.code))
        for one in SYNTAX.values()
    ]
    table += [(code, slug, severity, explanation(code)) for code, (slug, severity) in CODES.items()]
    table += [(rule.code, rule.slug, rule.severity, " ".join(rule.text.split())) for rule in every()]
    lines += [
        f"| {code} | {slug} | {severity} | {first_sentence(text)} |" for code, slug, severity, text in sorted(table)
    ]
    return "\n".join(lines) + "\n"


def _row(row: Setting) -> str:
    takes = ", ".join(f"`{choice}`" for choice in row.choices) if row.choices else row.kind.phrase
    takes += f", or {k.FILE.phrase}" if row.kind is k.TEMPLATE else ""
    default = "" if row.default is None else f"`{show(row, row.default)}`"
    name = f"`{row.path}`" if row.kind is not k.BLOCK else f"`{row.path} {{ }}`"
    doc = f"{row.doc}; *later*" if row.pending else row.doc
    if row.engines:
        doc += f"; read by {', '.join(f'`{one}`' for one in row.engines)}"
    decides = ", ".join(f"`{one}`" for one in row.args)
    shown = "<br>".join(f"`{line}`" for line in example(row).replace("|", "\\|").splitlines())
    return f"| {name}<br>{doc} | {takes} | {default} | {shown} | {decides} |"


def first_sentence(text: str) -> str:
    """The first sentence, for a cell of a table."""
    sentence, dot, _ = " ".join(text.split()).partition(". ")
    return (sentence + dot.strip()).replace("|", "\\|")


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join("docs", "reference.md")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(reference())
    print(f"wrote {path}")
