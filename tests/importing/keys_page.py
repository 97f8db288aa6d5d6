"""Write docs/import-keys.md: which keys of other tools carry over, from the importers' own tables.

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

What `xpc import` does with each key that it knows by name, written by `make docs` from the importers' tables.
`xpc import FILE --report text` prints what became of each key of a file, and why; [import.md](import.md) says more.
A key that stands in no table here, nor (of axolotl and LLaMA-Factory) among TRL's own arguments, is an error.
"""


TOOLS = (
    ("axolotl", "axolotl", "Read as TRL's argument of another name", "TRL's name", "renamed"),
    ("llamafactory", "LLaMA-Factory", "Read as TRL's argument of another name", "TRL's name", "renamed"),
    ("torchtune", "torchtune", "Read as a setting", "setting", "setting"),
)


def page() -> str:
    """The whole page."""
    out = [HEAD]
    for source, tool, title, other, column in TOOLS:
        table = keys.load(f"{source}/keys.toml")
        out += [f"\n## {tool}\n\n### {title}\n\n", *_table(other, table.column(column))]
        names = ", ".join(f"`{key}`" for key in _read(source, table))
        out.append(f"\n### Read\n\n{names}\n")
        for heading, fate in (("Of no effect in a bundle", "irrelevant"), ("Kept in a comment of the spec", "comment"),
                              ("Refused unless they are off", "refused")):  # fmt: skip
            if rows := table.column(fate):
                out += [f"\n### {heading}\n\n", *_table("why", rows)]
    return "".join(out)


def _read(source: str, table: keys.KeyTable) -> list[str]:
    """The keys that the readers of a source look up in a bare file, and those that the table says they read."""
    draft, _ = convert(BARE[source], "--from", source)
    stated = {key for key, row in table.items() if row.read or row.usual is not None}
    others = {*ARGUMENTS, *table.column("renamed").values()} if source != "torchtune" else set()
    return sorted((draft.seen - others - {*table}) | stated)


def _table(what: str, keys: Mapping[str, str]) -> Iterator[str]:
    """A row for all keys of one reason."""
    by_reason: dict[str, list[str]] = {}
    for key, why in keys.items():
        by_reason.setdefault(why, []).append(key)
    yield f"| key | {what} |\n|---|---|\n"
    for why, names in sorted(by_reason.items()):
        yield f"| {', '.join(f'`{key}`' for key in sorted(names))} | {why.replace('|', chr(92) + '|')} |\n"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as handle:
        handle.write(page())
