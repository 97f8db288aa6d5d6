"""What was meant by a name that the data block does not have: a column, a source with a word before it, a share."""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.suggest.sentence import FILES, REPOSITORY
from xpc.grammar.tree import Count, Number

BEHIND = {"split": "[{}]", "subset": ":{}", "config": ":{}", "revision": "@{}", "name": ":{}"}
"""What stands behind a dataset's name, as other tools call it."""
PARTS = {
    "completion": ("prompt", "completion"), "chosen": ("prompt", "chosen", "rejected"),
    "rejected": ("prompt", "chosen", "rejected"), "messages": ("messages",), "conversations": ("conversations",),
    "text": ("text",), "label": ("prompt", "completion", "label"),
}  # fmt: skip
"""Parts of a row that somebody names one by one."""
SOURCES = ("path", "paths", "file", "files", "data_files", "dataset", "datasets", "source", "sources")
"""What other tools write before the name of a source."""


TAKEN = "how many of its own rows, or which share of them"


def of_data(said: UnknownName) -> str | None:
    """What to write instead, or None where the name is none of these."""
    name = said.name
    if name in PARTS:
        named = _beside(said)
        order = ", ".join(named.get(one, one.upper()) for one in PARTS[name])
        return f"write `columns = [{order}]`: the names of the rows' columns, in this order"
    if name in SOURCES:
        source = said.typed if said.typed and said.typed[:1] != "[" else '"rows.jsonl"'
        return f"write `{source}` on a line of its own in the block: it is a source; without a block, `on {source}`"
    rows = of_a_mixture(name, said.typed) if isinstance(said.node, Number | Count) else None
    return None if rows is None else f"write `{rows}`: {TAKEN}"


def of_a_mixture(name: str, typed: str | None) -> str | None:
    """A source with its share, where a data set's name has a number behind it: `alpaca: 30%`; else None."""
    if typed is None or not typed.lstrip("-")[:1].isdigit():
        return None
    known = next((one for one in (name.replace("_", "-"), name) if registry.find_dataset(one) is not None), None)
    known = name if known is None and (REPOSITORY.fullmatch(name) or FILES.fullmatch(name.strip('"'))) else known
    return None if known is None else f"{_quoted(known)} {{ take = {_rows(typed)} }}"


def _quoted(source: str) -> str:
    """A source as it is typed: a file in quotes."""
    return f'"{source}"' if FILES.fullmatch(source) else source


def _beside(said: UnknownName) -> dict[str, str]:
    """The settings of the block that the name stands in, as they are typed, and the name's own."""
    text, place = said.label.source.text, said.label.span.start
    inside = text[text.rfind("{", 0, place) + 1 : (text.find("}", place) + 1 or len(text) + 1) - 1]
    found = re.finditer(r"^\s*(\w+)\s*=\s*(?:(\w+)|(\"[^\"\\\n]+\"))", inside.replace(",", "\n"), re.MULTILINE)
    return {one[1]: one[2] or (one[3].strip('"') if one[3].strip('"').isidentifier() else one[3]) for one in found}


def _rows(typed: str) -> str:
    """What was typed as the language writes it (0.6 is 60%), or an example where no data set has so many rows."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%|k|M|Ki|Mi)?", typed.replace("_", ""))
    number = 0.0 if found is None else float(found[1])
    if not 0 < number < 1e12:
        return "10%"
    return f"{100 * number:.10g}%" if found is not None and found[2] is None and number <= 1 else typed
