"""Write docs/import-keys.md from the importers' tables. The page says for each key what `xpc import` does with it.

python tests/importing/keys_page.py docs/import-keys.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from import_support import convert
from test_import_key_tables import ARGUMENTS, BARE

from xpc.compiler.importing import keys

HEAD = """\
# Keys of axolotl, LLaMA-Factory and torchtune

This page lists what `xpc import` does with each key that it knows. `make docs` writes it from the importers' tables.
`xpc import FILE --report text` prints what it did with each key of a file, and why; [import.md](import.md) explains
the outcomes. Any other key is an error, except that files of axolotl and LLaMA-Factory may use TRL's own arguments.
"""


TOOLS = (
    ("axolotl", "axolotl", "Other names for arguments of TRL", "TRL's `{}`", "renamed"),
    ("llamafactory", "LLaMA-Factory", "Other names for arguments of TRL", "TRL's `{}`", "renamed"),
    ("torchtune", "torchtune", "Other names for settings of xpc", "xpc's `{}`", "setting"),
)


def page() -> str:
    """The text of docs/import-keys.md."""
    out = [HEAD]
    for source, tool, title, other, column in TOOLS:
        table = keys.load(f"{source}/keys.toml")
        out += [f"\n## {tool}\n\n### {title}\n\n", *_table("the same as", table.column(column), other)]
        names = ", ".join(f"`{key}`" for key in _read(source, table))
        out.append(f"\n### Also read\n\n{names}\n")
        for heading, outcome, form in (("Without effect in a bundle", "irrelevant", "no effect: {}"),
                                       ("Kept as a comment in the spec", "comment", "kept as a comment: {}"),
                                       ("Refused unless switched off", "refused", "refused: {}")):  # fmt: skip
            if rows := table.column(outcome):
                out += [f"\n### {heading}\n\n", *_table("what the import does, and why", rows, form)]
    return "".join(out)


def _read(source: str, table: keys.KeyTable) -> list[str]:
    """Return the keys of a tool that xpc's importer handles by code. These are two kinds of keys: those that the table
    marks as read, and those that have no row in the table but are looked up when a minimal file is imported.
    """
    draft, _ = convert(BARE[source], "--from", source)
    stated = {key for key, row in table.items() if row.read or row.usual is not None}
    others = {*ARGUMENTS, *table.column("renamed").values()} if source != "torchtune" else set()
    return sorted((draft.seen - others - {*table}) | stated)


def _table(what: str, keys: Mapping[str, str], form: str) -> Iterator[str]:
    """A Markdown table with one row for each reason. The row lists all keys with this reason. In `form`, a pair of
    braces is replaced by the reason.
    """
    by_reason: dict[str, list[str]] = {}
    for key, why in keys.items():
        by_reason.setdefault(why, []).append(key)
    yield f"| key | {what} |\n|---|---|\n"
    for why, names in sorted(by_reason.items()):
        yield f"| {', '.join(f'`{key}`' for key in sorted(names))} | {form.format(why).replace('|', chr(92) + '|')} |\n"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as handle:
        handle.write(page())
