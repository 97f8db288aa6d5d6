"""`python -m xpc.compiler.explain.reference`: write docs/reference.md and a page for each clause, from the table of
settings (language/schema.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from xpc.compiler.explain.examples import example
from xpc.compiler.language import codes
from xpc.compiler.language import kinds as k
from xpc.compiler.language.schema import CLAUSES, SOURCE_SETTINGS, TABLE, Setting, outer_names
from xpc.compiler.language.typed import show
from xpc.grammar.package_data import read_text

TOGETHER = {
    "train": ("seed", "target", "sweep", "extra"),
    "lora": ("qlora", "oft", "vera", "loha", "miss"),
    "hardware": ("nodes", "precision"),
}
"""Maps a clause to the short clauses that are documented on its page, because they are too short for pages of their
own.
"""
SENTENCE = """\
`train MODEL on DATA for LENGTH with ...` is the first line of a spec. [language.md](../language.md) describes this
line, and `extra`, which passes a library's own arguments on.
"""
GENERATED = "Written by `make docs`; do not edit. [reference.md](../reference.md) lists all clauses."


def pages() -> Mapping[str, str]:
    """The text of each page, by the path of the page in docs/."""
    clauses = {page_of(clause): None for clause in CLAUSES}
    return {"reference.md": index(), **{f"reference/{name}.md": clause_page(name) for name in clauses}}


def page_of(clause: str) -> str:
    """The name of the page with the settings of a clause. The settings of `qlora` are on the page `lora`."""
    return next((page for page, more in TOGETHER.items() if clause in more), clause)


def index() -> str:
    """The text of the list of all settings, each with a link to its section."""
    short = ", ".join(f"`{name}`" for name, path in outer_names().items() if name != path)
    lines = [read_text(__file__, "reference_head.md").rstrip("\n").replace("SHORT", short)]
    for name in dict.fromkeys(map(page_of, CLAUSES)):
        links = [f"[{row.path}](reference/{name}.md#{row.path})" for row in _rows(name)]
        lines.append(f"| [{', '.join(_clauses(name))}](reference/{name}.md) | {', '.join(links)} |")
    return "\n".join(lines) + "\n"


def clause_page(name: str) -> str:
    """The text of a clause's page: a section with an anchor for each setting."""
    title = ", ".join(f"`{one}`" for one in _clauses(name))
    lines = [f"# Settings of {title}", "", GENERATED, ""]
    lines += [SENTENCE] if name == "train" else []
    for row in _rows(name):
        lines += _section(row)
    if name == "data":
        lines += ["## A source", "", "Each row of a `data` block names a source and takes these settings:", ""]
        lines += ["| setting | takes | |", "|---|---|---|"]
        lines += [f"| `{name}` | {row.kind.phrase} | {row.doc} |" for name, row in SOURCE_SETTINGS.items()]
        lines += [""]
    return "\n".join(lines)


def _clauses(page: str) -> tuple[str, ...]:
    return (page, *TOGETHER.get(page, ()))


def _rows(page: str) -> list[Setting]:
    return [row for row in TABLE if row.path.partition(".")[0] in _clauses(page)]


def _section(row: Setting) -> list[str]:
    takes = ", ".join(f"`{choice}`" for choice in row.choices) if row.choices else row.kind.phrase
    takes += f", or {k.FILE.phrase}" if row.kind is k.TEMPLATE else ""
    facts = {
        "Takes": takes,
        "Default": "" if row.default is None else f"`{show(row, row.default)}`",
        "Methods": ", ".join(f"`{one}`" for one in row.methods),
        "Launchers": ", ".join(f"`{one}`" for one in row.engines),
        "Trainer arguments": ", ".join(f"`{one}`" for one in row.args),
    }
    name = row.path if row.kind is not k.BLOCK else f"{row.path} {{ }}"
    doc = row.doc[:1].upper() + row.doc[1:]
    shown = example(row)
    return [
        f'<a id="{row.path}"></a>',
        f"## {name}",
        "",
        f"{doc}.",
        "",
        *(f"- {title}: {text}" for title, text in facts.items() if text),
        "",
        *(["```xp", shown, "```", ""] if shown else []),
    ]


def first_sentence(text: str) -> str:
    """The first sentence of a text, as a cell of a Markdown table."""
    return codes.first_sentence(text).replace("|", "\\|")


def write(folder: str, texts: Mapping[str, str]) -> None:
    """Write pages below a folder. In each subfolder that gets a page, delete all files that are not among `texts`; they
    are pages of an earlier version.
    """
    for location in {os.path.dirname(path) for path in texts} - {""}:
        os.makedirs(os.path.join(folder, location), exist_ok=True)
        for name in os.listdir(os.path.join(folder, location)):
            if f"{location}/{name}" not in texts:
                os.unlink(os.path.join(folder, location, name))
    for path, text in texts.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as handle:
            handle.write(text)


if __name__ == "__main__":
    docs = sys.argv[1] if len(sys.argv) > 1 else "docs"
    write(docs, pages())
    print(f"wrote {docs}/reference.md and {docs}/reference/")
