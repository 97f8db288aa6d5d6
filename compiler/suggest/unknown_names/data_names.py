"""Suggest what to write for an unknown name in a `data` block. For example, `chosen = good` names a column, `path =
"rows.jsonl"` a source, and `alpaca: 30%` a source with its share.
"""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.suggest.converted_values import FILES, REPOSITORY
from xpc.grammar.tree import Count, Number

PARTS = ["prompt completion", "prompt chosen rejected", "messages", "conversations", "text", "prompt completion label"]
"""The columns of a row, in the order of xpc's setting `columns`. Other tools have a key for each column: `chosen`."""
SOURCES = ("path", "paths", "file", "files", "data_files", "dataset", "datasets", "source", "sources")
"""Keys of other tools whose value is a data source."""


def data_advice(unknown: UnknownName) -> str | None:
    """The help for an unknown name in a `data` block: what to write instead. None if the name is not about data."""
    name = unknown.name
    columns = next((one.split() for one in PARTS if name != "prompt" and name in one.split()), None)
    if columns is not None:
        named = _block_columns(unknown)
        order = ", ".join(named.get(one, one.upper()) for one in columns)
        return f"write `columns = [{order}]`: the names of the rows' columns, in this order"
    if name in SOURCES:
        source = (unknown.typed or "").strip("[] ").partition(",")[0].strip() or '"rows.jsonl"'
        return f"write the source `{source}` on a line of its own in the block, or write `on {source}` without a block"
    rows = mixture_row(name, unknown.typed) if isinstance(unknown.node, Number | Count) else None
    share = re.search(r"take = (.+%)", rows or "")
    mixed = f"; in a mixture with shares, write `share = {share[1]}`" if share is not None else ""
    return rows and f"write `{rows}`: the number of rows to use from this source, or a share of its rows{mixed}"


def mixture_row(name: str, typed: str | None) -> str | None:
    """Rewrite a dataset that is followed by its share of a mixture: `alpaca: 30%` becomes `alpaca { take = 30% }`. None
    for any other name.
    """
    if typed is None or not typed.lstrip("-")[:1].isdecimal():
        return None
    known = next((one for one in (name.replace("_", "-"), name) if registry.find_dataset(one) is not None), None)
    known = name if known is None and (REPOSITORY.fullmatch(name) or FILES.fullmatch(name.strip('"'))) else known
    source = f'"{known}"' if known is not None and FILES.fullmatch(known) else known  # the name of a file gets quotes
    return None if source is None else f"{source} {{ take = {_rows(typed)} }}"


def _block_columns(unknown: UnknownName) -> dict[str, str]:
    """All lines `NAME = VALUE` of the block that contains the unknown name, as a mapping from names to values."""
    text, location = unknown.label.source.text, unknown.label.span.start
    inside = text[text.rfind("{", 0, location) + 1 : (text.find("}", location) + 1 or len(text) + 1) - 1]
    found = re.finditer(r"^\s*(\w+)\s*=\s*(?:(\w+)|(\"[^\"\\\n]+\"))", inside.replace(",", "\n"), re.MULTILINE)
    return {one[1]: one[2] or (one[3].strip('"') if one[3].strip('"').isidentifier() else one[3]) for one in found}


def _rows(typed: str) -> str:
    """Convert a number of rows, or a share of them, to a value for `take`: 1000 stays, and 0.6 becomes `60%`. For any
    other number, the result is the example `10%`.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%|k|M|Ki|Mi)?", typed.replace("_", ""))
    number = 0.0 if found is None else float(found[1])
    if not 0 < number < 1e12:
        return "10%"
    return f"{100 * number:.10g}%" if found is not None and found[2] is None and number <= 1 else typed
