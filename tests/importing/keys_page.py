"""Write docs/import-keys.md: which keys of other tools carry over, from the importers' own tables.

python tests/importing/keys_page.py docs/import-keys.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from xpc.compiler.importing.axolotl import data as axolotl_data
from xpc.compiler.importing.axolotl import keys as axolotl_keys
from xpc.compiler.importing.axolotl import reader as axolotl
from xpc.compiler.importing.llamafactory import keys as llamafactory_keys
from xpc.compiler.importing.torchtune import keys as torchtune_keys

HEAD = """\
# Keys of axolotl, LLaMA-Factory and torchtune

What `xpc import` does with each key that it knows by name, written by `make docs` from the importers' tables.
`xpc import FILE --report text` prints what became of each key of a file, and why; [import.md](import.md) says more.
A key that stands in no table here, nor (of axolotl and LLaMA-Factory) among TRL's own arguments, is an error.
"""


TRL = ("Read as TRL's argument of another name", "TRL's name")


def page() -> str:
    """The whole page."""
    out = [HEAD]
    for tool, kind, same, read, quiet, kept, impossible in (
        ("axolotl", TRL, axolotl_keys.SAME, (*axolotl.OWN, *axolotl_data.READ), axolotl_keys.QUIET, axolotl_keys.KEPT,
         axolotl_keys.IMPOSSIBLE),
        ("LLaMA-Factory", TRL, llamafactory_keys.SAME, llamafactory_keys.OURS, llamafactory_keys.QUIET,
         llamafactory_keys.KEPT, llamafactory_keys.IMPOSSIBLE),
        ("torchtune", ("Read as a setting", "setting"), torchtune_keys.SAME, torchtune_keys.READ,
         torchtune_keys.QUIET, {},
         {**torchtune_keys.IMPOSSIBLE, **torchtune_keys.REFUSED}),
    ):  # fmt: skip
        out += [f"\n## {tool}\n\n### {kind[0]}\n\n", *_table(kind[1], same)]
        names = ", ".join(f"`{key}`" for key in sorted({*read} - {*impossible, *quiet, *same}))
        out.append(f"\n### Read\n\n{names}\n")
        for title, table in (("Of no effect in a bundle", quiet), ("Kept in a comment of the spec", kept),
                             ("Refused unless they are off", impossible)):  # fmt: skip
            if table:
                out += [f"\n### {title}\n\n", *_table("why", table)]
    return "".join(out)


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
